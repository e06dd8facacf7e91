"""The curvature update and the line search, each by itself."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from msaccel.accel.dimreduce.bfgs import Constants, search, updated

CONSTANTS = Constants()


@given(st.integers(1, 12), st.integers(-6, 6), st.integers(0, 999))
def test_bfgs_is_the_inverse_of_its_textbook_form(components: int, exponent: int, seed: int) -> None:
    """The direct update of the Hessian (Nocedal and Wright, eq. 6.19), inverted, is that of its inverse."""
    draw = np.random.default_rng(seed).standard_normal
    root, curve = draw((2, components, components))
    inverse = root @ root.T + np.eye(components)
    step = 10.0**exponent * draw(components)
    change = (curve @ curve.T + np.eye(components)) @ step
    hessian = np.linalg.inv(inverse)
    along = hessian @ step
    hessian += np.outer(change, change) / (change @ step) - np.outer(along, along) / (step @ along)
    found = updated(inverse, change, step)
    assert found is not None
    scale = np.abs(found).max()
    np.testing.assert_allclose(found / scale, np.linalg.inv(hessian) / scale, atol=1e-9)


@given(st.integers(1, 12), st.integers(-6, 6), st.integers(0, 999))
def test_what_is_learned(components: int, exponent: int, seed: int) -> None:
    """The secant equation B y = s, and B stays symmetric and positive definite over many pairs."""
    draw = np.random.default_rng(seed).standard_normal
    inverse = np.eye(components)
    curve = draw((components, components))
    hessian = 10.0**exponent * (curve @ curve.T + np.eye(components))
    for step in draw((20, components)):
        found = updated(inverse, hessian @ step, step)
        assert found is not None
        inverse = found
        np.testing.assert_allclose(inverse @ (hessian @ step), step, atol=1e-6)
        np.testing.assert_array_equal(inverse, inverse.T)
        assert np.linalg.eigvalsh(inverse).min() > 0


@pytest.mark.parametrize(
    "change",
    [[-1.0, 0, 0], [0, 1.0, 0], [0, 0, 0], [9e-11, 1.0, 0], [np.nan, 0, 0]],
    ids=["downwards", "across", "none", "all but across", "nan"],
)
def test_a_pair_of_no_use(change: list[float]) -> None:
    assert updated(np.eye(3), np.array(change), np.array([2.0, 0, 0])) is None


def test_a_pair_that_just_serves() -> None:
    assert updated(np.eye(3), np.array([1.1e-10, 1.0, 0]), np.array([2.0, 0, 0])) is not None


def parabola(step: np.ndarray) -> float:
    """Its minimum is a step of 1, its slope at 0 is -1."""
    return float(((step - 1) ** 2).sum()) / 2


def test_the_first_step_that_is_good_enough() -> None:
    step, trials = search(0.5, parabola, np.array([4.0]), -4.0, CONSTANTS)
    # 4 and 2.2 rise, 1.21 falls by 0.478 where 0.4 × 1.21 = 0.484 is asked for, and 0.6655 by more than 0.27
    assert trials == 4 and step == pytest.approx(4 * 0.55**3)


def test_the_decrease_must_be_strict() -> None:
    level = search(1.0, lambda step: 1.0 - 0.4 * float(step[0]), np.array([1.0]), -1.0, CONSTANTS)
    assert level == (None, 20)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_a_loss_that_is_not_finite_is_not_good_enough(value: float) -> None:
    step, trials = search(0.5, lambda s: value if s[0] > 1 else parabola(s), np.array([4.0]), -4.0, CONSTANTS)
    assert trials == 4 and np.isfinite(step).all()
    assert search(0.5, lambda s: value, np.array([4.0]), -4.0, CONSTANTS) == (None, 20)


@pytest.mark.parametrize("max_trials", [1, 2, 20])
def test_the_number_of_trials_is_bounded(max_trials: int) -> None:
    asked: list[float] = []

    def rising(step: np.ndarray) -> float:
        asked.append(float(step[0]))
        return 1.0 + float(step[0])

    found = search(1.0, rising, np.array([1.0]), -1.0, Constants(max_trials=max_trials))
    assert found == (None, max_trials)
    np.testing.assert_allclose(asked, 0.55 ** np.arange(max_trials))


@pytest.mark.parametrize("slope", [0.0, 1.0, np.nan])
def test_a_direction_that_does_not_descend_costs_nothing(slope: float) -> None:
    assert search(1.0, parabola, np.zeros(1), slope, CONSTANTS) == (None, 0)
