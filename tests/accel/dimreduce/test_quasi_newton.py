"""The update of stage 2 against one written otherwise, on problems with a known end, and where it fails."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from msaccel.accel.dimreduce.bfgs import Constants
from msaccel.accel.dimreduce.projection import Projection, square
from msaccel.accel.dimreduce.quasi_newton import Measured, SubspaceStep
from msaccel.errors import CheckpointError
from tests.accel.dimreduce.conftest import Quadratic

WITHOUT_RESIDUAL = Constants(alpha=0.0)


class Bowl:
    """A smooth convex loss that is no quadratic: Σ log cosh of mixed weights, a share of it outside the subspace."""

    def __init__(self, seed: int = 0, components: int = 5, size: int = 30) -> None:
        draw = np.random.default_rng(seed).standard_normal
        self.basis = np.linalg.qr(draw((size, components)))[0].T.astype(np.float32)
        self.mix = draw((2 * size, size)) / np.sqrt(size)
        self.start = 3 * draw(size)

    def loss(self, weights: np.ndarray) -> float:
        mixed = np.abs(self.mix @ weights)
        return float((mixed + np.log1p(np.exp(-2 * mixed))).sum())

    def gradient(self, weights: np.ndarray) -> np.ndarray:
        return (self.mix.T @ np.tanh(self.mix @ weights)).astype(np.float32)


def stepper(basis: np.ndarray, constants: Constants = WITHOUT_RESIDUAL) -> SubspaceStep:
    return SubspaceStep(Projection(basis), *basis.shape, constants)


def advance(step: SubspaceStep, problem: Bowl | Quadratic, weights: np.ndarray) -> tuple[np.ndarray, Measured]:
    """One update; weights stay in float64, so that only the update's own rounding is seen."""
    exact = problem.basis.astype(np.float64)
    increment, measured = step(
        problem.gradient(weights), problem.loss(weights), lambda offset: problem.loss(weights + offset @ exact)
    )
    assert increment.dtype == np.float32 and increment.shape == weights.shape
    return weights + increment, measured


def textbook(problem: Bowl, updates: int, constants: Constants) -> list[np.ndarray]:
    """The same recipe with dense matrices: the Hessian itself is estimated and solved with."""
    basis = problem.basis.astype(np.float64)
    outside = np.eye(basis.shape[1]) - basis.T @ basis
    weights, momentum, hessian = problem.start.copy(), np.zeros(basis.shape[1]), np.eye(len(basis))
    before: tuple[np.ndarray, np.ndarray] | None = None
    path = []
    for _ in range(updates):
        gradient = problem.gradient(weights).astype(np.float64)
        if before is not None:
            moved, change = before[1], basis @ gradient - before[0]
            along = hessian @ moved
            assert change @ moved > 0
            hessian = hessian + np.outer(change, change) / (change @ moved) - np.outer(along, along) / (moved @ along)
        direction = np.linalg.solve(hessian, -basis @ gradient)
        slope, length = basis @ gradient @ direction, 1.0
        while problem.loss(weights + length * direction @ basis) >= problem.loss(weights) + 0.4 * length * slope:
            length *= 0.55
            assert length > 1e-6
        momentum = constants.gamma * momentum + outside @ gradient
        before = basis @ gradient, length * direction
        weights = weights + length * direction @ basis - constants.alpha * momentum
        path.append(weights)
    return path


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_against_the_textbook(seed: int) -> None:
    problem, constants = Bowl(seed), Constants(alpha=0.002)
    step, weights = stepper(problem.basis, constants), problem.start
    for expected in textbook(problem, 7, constants):
        weights, _ = advance(step, problem, weights)
        np.testing.assert_allclose(weights, expected, atol=2e-6)
    assert step.counters.failed == step.counters.skipped == 0


@pytest.mark.parametrize("lowest", [0.01, 1.0, 100.0])
def test_a_quadratic_is_solved(lowest: float) -> None:
    """k = 8, condition 100: at most 5k updates to a millionth of the distance, from 30 starts."""
    for seed in range(30):
        problem = Quadratic.random(seed, lowest * np.geomspace(1, 100, 8))
        away = np.random.default_rng(1000 + seed).standard_normal(8) @ problem.basis.astype(np.float64)
        step, weights = stepper(problem.basis), problem.minimum + away
        updates = 0
        while np.linalg.norm(weights - problem.minimum) > 1e-6 * np.linalg.norm(away):
            weights, measured = advance(step, problem, weights)
            updates += 1
            assert measured.share == pytest.approx(1, abs=1e-5)
            assert updates <= 40
        np.testing.assert_array_equal(step.inverse, step.inverse.T)
        assert np.linalg.eigvalsh(step.inverse).min() > 0


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 10**6), st.floats(-3, 3))
def test_the_subspace_step_never_raises_the_loss(seed: int, exponent: float) -> None:
    problem = Bowl(seed=seed)
    step, weights = stepper(problem.basis), 10.0**exponent * problem.start
    for _ in range(15):
        before = problem.loss(weights)
        weights, measured = advance(step, problem, weights)
        # the increment is rounded to float32, the trial's loss was not
        assert problem.loss(weights) <= before * (1 + 1e-6)
        assert measured.trials <= 20 and 0 <= measured.share <= 1 + 1e-6
        np.testing.assert_array_equal(step.inverse, step.inverse.T)
        assert np.linalg.eigvalsh(step.inverse).min() > 0


def test_the_first_update_is_steepest_descent() -> None:
    problem = Bowl()
    step = stepper(problem.basis)
    weights, measured = advance(step, problem, problem.start)
    projected = problem.basis.astype(np.float64) @ problem.gradient(problem.start)
    length = 0.55 ** (measured.trials - 1)
    np.testing.assert_allclose(weights - problem.start, -length * projected @ problem.basis, atol=1e-6)
    assert step.counters.skipped == step.counters.failed == step.counters.resets == 0


def test_the_residual_has_momentum_and_stays_outside() -> None:
    problem = Bowl()
    constants = Constants(gamma=0.5, alpha=0.1)
    exact = problem.basis.astype(np.float64)
    outside = np.eye(30) - exact.T @ exact
    step, momentum, weights = stepper(problem.basis, constants), np.zeros(30), problem.start
    for _ in range(4):
        momentum = 0.5 * momentum + outside @ problem.gradient(weights)
        moved, _ = advance(step, problem, weights)
        np.testing.assert_allclose(outside @ (moved - weights), -0.1 * momentum, atol=1e-5)
        weights = moved


def test_clipping_acts_on_the_residual_only() -> None:
    problem = Bowl()
    weights, constants = problem.start, Constants(alpha=0.1)
    exact = problem.basis.astype(np.float64)

    def increment(clip: float) -> np.ndarray:
        asked = problem.gradient(weights), problem.loss(weights), lambda c: problem.loss(weights + c @ exact)
        return stepper(problem.basis, constants)(*asked, clip=clip)[0].astype(np.float64)

    inside = exact.T @ exact
    full, tenth = increment(1.0), increment(0.1)
    np.testing.assert_allclose(inside @ full, inside @ tenth, atol=1e-5)
    np.testing.assert_allclose(0.1 * (full - inside @ full), tenth - inside @ tenth, atol=1e-5)


def test_weight_decay() -> None:
    problem, decay = Bowl(), 0.01
    asked = problem.gradient(problem.start), 1.0, lambda offset: 0.0
    weights = problem.start.astype(np.float32)
    plain, _ = stepper(problem.basis)(*asked)
    decayed, _ = stepper(problem.basis, Constants(alpha=0.0, weight_decay=decay))(*asked, weights)
    np.testing.assert_allclose(decayed, plain - decay * weights, rtol=1e-5)
    with pytest.raises(ValueError, match="weight decay"):
        stepper(problem.basis, Constants(weight_decay=decay))(*asked)


def test_a_loss_that_only_rises() -> None:
    """Restored and counted; after three in a row B is reset and the first trial has the length 1."""
    problem = Bowl()
    step, weights = stepper(problem.basis, Constants(alpha=0.1)), problem.start
    for _ in range(4):
        weights, _ = advance(step, problem, weights)
    known = {name: value.copy() for name, value in step.state_dict().items()}
    trials = step.counters.trials
    lengths: list[list[float]] = []

    def rises(offset: np.ndarray) -> float:
        lengths[-1].append(float(np.linalg.norm(offset)))
        return 2.0

    for update in range(1, 8):
        gradient = problem.gradient(weights + update)
        lengths.append([])
        increment, measured = step(gradient, 1.0, rises)
        assert step.counters.failed == update and measured.trials == 20
        assert step.counters.resets == (update >= 4) + (update >= 7)
        assert np.abs(problem.basis @ increment).max() < 1e-5 < np.abs(increment).max()
        if update <= 3:
            for name in ("inverse", "gradient", "step"):
                np.testing.assert_array_equal(step.state_dict()[name], known[name])
        else:
            np.testing.assert_array_equal(step.inverse, np.eye(5))
            assert not step.step.any()
    assert lengths[3][0] == pytest.approx(1) and lengths[6][0] == pytest.approx(1)
    projected = problem.basis.astype(np.float64) @ problem.gradient(weights + 5)
    assert lengths[4][0] == pytest.approx(np.linalg.norm(projected))
    assert (step.counters.failed, step.counters.resets, step.counters.failures) == (7, 2, 1)
    assert step.counters.trials == trials + 140


def test_after_a_failure_the_pair_spans_it() -> None:
    """Nothing moved inside the subspace, so the next pair is the gradient's change since the last good update."""
    problem = Bowl()
    through, failing = stepper(problem.basis), stepper(problem.basis)
    weights, _ = advance(through, problem, problem.start)
    advance(failing, problem, problem.start)
    failing(problem.gradient(weights), 1.0, lambda offset: 2.0)
    assert failing.counters.failures == 1
    expected, found = advance(through, problem, weights)[0], advance(failing, problem, weights)[0]
    np.testing.assert_array_equal(found, expected)
    np.testing.assert_array_equal(failing.inverse, through.inverse)
    assert failing.counters.failures == 0


def test_a_pair_that_curves_downwards_is_skipped() -> None:
    """L = -|w|: the gradient grows along the step, y·s < 0; the search goes on with the old B."""
    basis = np.eye(2, 6, dtype=np.float32)
    step = stepper(basis)
    skipped = []
    for height in (1.0, 2.0, 3.0):
        gradient = np.array([height, 0, 0, 0, 0, 0], np.float32)
        step(gradient, 0.0, lambda offset: -10 * float(np.linalg.norm(offset)))
        skipped.append(step.counters.skipped)
        np.testing.assert_array_equal(step.inverse, np.eye(2))
        np.testing.assert_array_equal(step.gradient, [height, 0])
    assert skipped == [0, 1, 2]


@pytest.mark.parametrize("before", [0, 1, 3])
def test_at_the_minimum_nothing_moves(before: int) -> None:
    problem = Bowl()
    step = stepper(problem.basis)
    step.counters.failures = before
    increment, measured = step(np.zeros(30, np.float32), 1.0, lambda offset: 0.0)
    assert not increment.any() and measured == Measured(0, 0.0)
    assert step.counters.failed == 1 and step.counters.resets == (before == 3)


def test_a_gradient_outside_the_subspace() -> None:
    basis = np.eye(2, 6, dtype=np.float32)
    increment, measured = stepper(basis, Constants(alpha=0.5))(np.full(6, 1, np.float32), 1.0, lambda offset: 0.0)
    assert measured.share == pytest.approx(1 / 3)
    np.testing.assert_allclose(increment, [-1, -1, -0.5, -0.5, -0.5, -0.5])


def test_state_goes_on_as_if_nothing_had_been() -> None:
    problem, constants = Bowl(), Constants(alpha=0.1)
    through, weights = stepper(problem.basis, constants), problem.start
    for _ in range(3):
        weights, _ = advance(through, problem, weights)
    through.counters.failures = 2
    saved = {name: value.copy() for name, value in through.state_dict().items()}
    resumed = stepper(problem.basis, constants)
    resumed.load_state_dict(saved)
    assert resumed.counters == through.counters
    one, two = weights, weights
    for _ in range(5):
        one, first = advance(through, problem, one)
        two, second = advance(resumed, problem, two)
        assert one.tobytes() == two.tobytes() and first == second
    np.testing.assert_array_equal(saved["counters"][:1], [2])


@pytest.mark.parametrize("name", ["inverse", "gradient", "step", "residual", "counters"])
def test_state_of_another_job_is_refused(name: str) -> None:
    step = stepper(Bowl().basis)
    state = {key: value.copy() for key, value in step.state_dict().items()}
    for wrong in ({k: v for k, v in state.items() if k != name}, state | {name: np.zeros(2)}):
        with pytest.raises(CheckpointError, match=rf"{name}.*accel\.dimreduce\.components"):
            step.load_state_dict(wrong)


@given(st.integers(1, 9), st.integers(1, 70_000), st.integers(-6, 6))
@settings(max_examples=25, deadline=None)
def test_projection_against_dense_products(components: int, size: int, exponent: int) -> None:
    draw = np.random.default_rng(size).standard_normal
    matrix = draw((components, size)).astype(np.float32)
    vector, coordinates = (10.0**exponent * draw(size)).astype(np.float32), draw(components)
    whole, exact = Projection(matrix), matrix.astype(np.float64)
    scale = 10.0**exponent * np.sqrt(size)
    np.testing.assert_allclose(whole.project(vector), exact @ vector.astype(np.float64), atol=1e-11 * scale)
    np.testing.assert_allclose(whole.lift(coordinates), coordinates @ exact, rtol=1e-6, atol=1e-6)
    assert square(vector) == pytest.approx(float((vector.astype(np.float64) ** 2).sum()), rel=1e-12)
