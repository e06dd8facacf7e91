"""Adasum over many parts, steps that leave the weights alone, and the finite check over parts, as native operators."""

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests import reference
from tests.kernels.operators import call

Arrays = list[np.ndarray]
LARGE = ((3, 70_000), (5,), (1,), (66_000,))  # over several chunks and pieces


def adasum(parts: Sequence[Sequence[np.ndarray]]) -> Arrays:
    combined = [np.full_like(tensor, np.nan) for tensor in parts[0]]
    call("adasum", np.array([len(parts)], np.int32), *[tensor for part in parts for tensor in part], *combined)
    return combined


def of_rows(parts: Sequence[Sequence[np.ndarray]]) -> np.ndarray:
    rows = np.stack([np.concatenate([tensor.ravel() for tensor in part]) for part in parts])
    combined = np.full_like(rows[0], np.nan)
    call("adasum_rows", rows, np.array([tensor.size for tensor in parts[0]], np.int32), combined)
    return combined


def drawn(seed: int, shapes: Sequence[Sequence[int]], scale: float = 1.0) -> Arrays:
    draw = np.random.default_rng(seed)
    return [(scale * draw.standard_normal(shape)).astype(np.float32) for shape in shapes]


shapes = st.lists(st.lists(st.integers(1, 40), min_size=1, max_size=3), min_size=1, max_size=4)


@given(st.integers(1, 4), shapes, st.integers(0, 2**31), st.data())
@settings(max_examples=80, deadline=None, derandomize=True)
def test_any_number_of_parts_as_in_float64(levels: int, shapes: list[list[int]], seed: int, data) -> None:
    """Some parts are zero, as those without samples; others are nearly opposite."""
    count = 2**levels
    zero = data.draw(st.sets(st.integers(0, count - 1)), "parts that are zero")
    common = drawn(seed, shapes)
    parts = []
    for part in range(count):
        own = drawn(seed + 1 + part, shapes, 10.0 ** (part % 3 - 1))
        sign = 1 if part % 4 else -1
        parts.append([sign * x + y if part not in zero else 0 * x for x, y in zip(common, own, strict=True)])
    found = adasum(parts)
    for i, expected in enumerate(reference.adasum_of(parts)):
        size = sum(reference.norm([part[i]]) for part in parts)
        assert reference.norm([found[i] - expected]) <= 1e-6 * size
    np.testing.assert_array_equal(of_rows(parts), np.concatenate([tensor.ravel() for tensor in found]))


@pytest.mark.parametrize("count", [4, 8, 16])
def test_all_levels_at_once_are_pairs_of_pairs_bit_for_bit(count: int) -> None:
    """Ranks in processes of their own combine pairs, virtual ones all parts at once."""
    common = drawn(0, LARGE)
    parts = [[x + y for x, y in zip(common, drawn(1 + part, LARGE), strict=True)] for part in range(count)]
    pairs: list[Sequence[np.ndarray]] = list(parts)
    while len(pairs) > 1:
        pairs = [adasum(pairs[place : place + 2]) for place in range(0, len(pairs), 2)]
    for found, expected in zip(adasum(parts), pairs[0], strict=True):
        np.testing.assert_array_equal(found, expected)


def momentum(good: float) -> list[np.ndarray]:
    return [np.array([good], np.float32), np.array([0.1], np.float32), np.array([0.9, *DECAYS], np.float32)]


def adam(good: float, decoupled: bool) -> list[np.ndarray]:
    numbers = np.array([0.9, 0.999, 1e-8, decoupled, *DECAYS], np.float32)
    return [np.array([good], np.float32), np.array([0.1], np.float32), numbers, *np.full((2, 1), 0.8, np.float32)]


DECAYS = (0.1, 0.0, 0.2, 0.1)
STEPS = {
    "momentum": (momentum, 1),
    "adam": (lambda good: adam(good, False), 2),
    "adamw": (lambda good: adam(good, True), 2),
}


@pytest.mark.parametrize("name", STEPS)
@pytest.mark.parametrize("good", [1.0, 0.0])
def test_a_difference_is_the_step_that_is_not_taken(name: str, good: float) -> None:
    numbers, moments = STEPS[name]
    operator = "momentum" if name == "momentum" else "adam"
    before = [drawn(seed, LARGE) for seed in range(2)] + [[abs(x) for x in drawn(9, LARGE)]] * moments
    taken, left = ([x.copy() for group in before for x in group] for _ in range(2))
    done, differences = np.zeros(1, np.float32), [np.full_like(x, np.nan) for x in before[0]]
    known = numbers(good), numbers(good)
    call(operator, *known[0], *taken, done)
    call(f"{operator}_difference", *known[1], *left, *differences)
    count = len(LARGE)
    for one, other in zip([*known[0], *taken[2 * count :]], [*known[1], *left[2 * count :]], strict=True):
        np.testing.assert_array_equal(one, other, err_msg="state")
    for i, weight in enumerate(before[1]):
        np.testing.assert_array_equal(left[count + i], weight, err_msg="weights stay")
        np.testing.assert_array_equal(differences[i], weight - taken[count + i])
    assert done == good and any(difference.any() for difference in differences) == bool(good)


@pytest.mark.parametrize(
    ("norms", "applied"), [([1, 5, 3], 1), ([2], 1), ([1, np.nan, 3], 0), ([np.inf, 1], 0), ([0, 0], 1)]
)
def test_parts_step_if_all_are_finite(norms: list[float], applied: float) -> None:
    state = [np.array(value, np.float32) for value in (8, 1e30, 0)] + [np.array(0, np.int32)]
    good, outcome = np.full(1, np.nan, np.float32), np.full(6, np.nan, np.float32)
    every, clipped, policy = np.array(norms, np.float32), np.array(0.5, np.float32), np.array([4, 0], np.int32)
    call("finite_check", every, clipped, policy, *state, good, outcome)
    np.testing.assert_array_equal(outcome, [every.mean(), every.max(), applied, applied / 2, 8, 1 - applied])
    assert good == applied and state[2] == 1 - applied
