"""False alarms, power, constant samples and Holm: the numbers that the verdicts rest on."""

from __future__ import annotations

import math
import warnings

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from scipy.stats import ttest_ind, ttest_rel
from statsmodels.stats.multitest import multipletests

from msaccel.compare import statistics
from msaccel.compare.measures import ACCURACY, SPEED
from msaccel.compare.verdicts import Question, Verdict, decide

COMPARISONS, N = 2000, 5


def seeds(values: object) -> dict[int, float]:
    return dict(enumerate(map(float, values)))  # type: ignore[call-overload]


def found(effect: float, seed: int, ratio: bool = False, paired: bool = False, baselines: int = 1) -> float:
    """The share of simulated reports in which the first verdict says more than `inconclusive`."""
    draw = np.random.default_rng(seed)
    compare, name = (statistics.ratio, SPEED) if ratio else (statistics.difference, ACCURACY)
    alarms = 0
    for _ in range(COMPARISONS):
        asked = []
        for place in range(baselines):
            ours, theirs = draw.normal(0.0, 0.002, (2, N))
            ours += effect * 0.002 * (place == 0)
            sides = [9000 * np.exp(10 * side) if ratio else 0.98 + side for side in (ours, theirs)]
            asked.append(Question(name, compare(*map(seeds, sides), paired)))
        alarms += decide(asked)[0].verdict is not Verdict.INCONCLUSIVE
    return alarms / COMPARISONS


@pytest.mark.parametrize(("ratio", "paired"), [(False, False), (True, False), (False, True)])
def test_without_an_effect_at_most_55_of_1000_verdicts_see_one(ratio: bool, paired: bool) -> None:
    assert found(0.0, 1, ratio, paired) <= 0.055


@pytest.mark.parametrize("ratio", [False, True])
def test_two_standard_deviations_are_found_in_seven_of_ten(ratio: bool) -> None:
    assert found(2.0, 2, ratio) >= 0.70


def test_any_false_alarm_in_a_report_of_three_verdicts_stays_rare() -> None:
    assert found(0.0, 3, baselines=3) <= 0.055


def test_unequal_spreads_hardly_raise_the_alarms() -> None:
    draw = np.random.default_rng(4)
    alarms = 0
    for _ in range(COMPARISONS):
        estimate = statistics.difference(seeds(draw.normal(0, 1, 5)), seeds(draw.normal(0, 3, 5)))
        assert estimate and estimate.p is not None
        alarms += estimate.p < 0.05
    assert alarms / COMPARISONS <= 0.065  # 6.1 %; Welch is a little generous here


def test_the_interval_and_p_are_those_of_a_textbook() -> None:
    """Welch by hand: means 3 and 6, variances 2.5 and 10, so t = -3 / sqrt(2.5), with 5.88 degrees of freedom."""
    estimate = statistics.difference(seeds([1, 2, 3, 4, 5]), seeds([2, 4, 6, 8, 10]))
    assert estimate is not None
    assert estimate.value == -3 and estimate.p == pytest.approx(0.10753, abs=1e-4)
    assert (estimate.low, estimate.high) == pytest.approx((-6.889, 0.889), abs=2e-3)


def test_a_ratio_is_a_difference_of_logarithms() -> None:
    ours, theirs = seeds([100, 200, 400]), seeds([10, 20, 40])
    estimate = statistics.ratio(ours, theirs)
    assert estimate is not None and estimate.is_ratio and estimate.value == pytest.approx(10)
    assert estimate.low is not None and estimate.high is not None
    assert math.sqrt(estimate.low * estimate.high) == pytest.approx(10)
    assert statistics.ratio({0: 0.0}, {0: 1.0}) is None


@pytest.mark.parametrize(
    ("ours", "theirs", "verdict"),
    [
        ([0.5] * 5, [0.5] * 5, Verdict.NO_SPREAD),
        ([0.6] * 5, [0.5] * 5, Verdict.NO_SPREAD),
        ([0.1 + 0.2] * 3, [0.3] * 3, Verdict.NO_SPREAD),  # which differ in the last bit
        ([0.6] * 5, [0.50, 0.51, 0.49, 0.50, 0.52], Verdict.BETTER),  # the other side's spread judges alone
        ([0.6] * 5, [0.1, 0.9, 0.5, 0.99, 0.2], Verdict.INCONCLUSIVE),
        ([0.6, 0.61], [0.5, 0.51, 0.52], Verdict.TOO_FEW),
    ],
)
def test_samples_without_spread_are_no_certainty(ours: list[float], theirs: list[float], verdict: Verdict) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        estimate = statistics.difference(seeds(ours), seeds(theirs))
        assert decide([Question(ACCURACY, estimate)])[0].verdict is verdict


def test_pairs_need_five_common_seeds() -> None:
    ours = {seed: 0.9 + seed / 100 for seed in range(5)}
    theirs = {seed: value - 0.01 - seed / 10_000 for seed, value in ours.items()}
    estimate, welch = (statistics.difference(ours, theirs, paired) for paired in (True, False))
    assert estimate and welch and estimate.paired and not welch.paired
    assert estimate.p is not None and welch.p is not None and estimate.p < 0.001 < welch.p
    shifted = {seed + 1: value for seed, value in theirs.items()}
    fallback = statistics.difference(ours, shifted, paired=True)
    assert fallback and not fallback.paired


def test_pairs_that_all_differ_by_the_same_are_compared_unpaired() -> None:
    """As where clipping never clips: each seed has the same bits on both sides, and yet seeds vary."""
    ours = seeds([0.98, 0.985, 0.979, 0.983, 0.981, 0.986])
    for shift in (0.0, 0.01):
        theirs = {seed: value - shift for seed, value in ours.items()}
        found = statistics.difference(ours, theirs, paired=True)
        assert found == statistics.difference(ours, theirs) and found.p is not None and not found.paired
    assert found.value == pytest.approx(0.01)


P_VALUES = st.lists(st.floats(0, 1), min_size=1, max_size=12)


@pytest.mark.slow
@settings(max_examples=20)  # statsmodels collects all garbage each time, 0.1 s
@given(P_VALUES)
def test_holm_is_the_one_of_statsmodels(p_values: list[float]) -> None:
    np.testing.assert_allclose(statistics.holm(p_values), multipletests(p_values, method="holm")[1], rtol=1e-12)


@given(P_VALUES)
def test_holm_only_raises_and_keeps_the_order(p_values: list[float]) -> None:
    adjusted = [after for after in statistics.holm([None, *p_values, None]) if after is not None]
    assert all(p <= after <= 1 or math.isclose(p, after) for p, after in zip(p_values, adjusted, strict=True))
    in_order = [after for _, after in sorted(zip(p_values, adjusted, strict=True))]
    assert in_order == sorted(in_order)
    assert math.isclose(min(adjusted), min(1.0, min(p_values) * len(p_values)), abs_tol=1e-12)


@given(P_VALUES, st.floats(0, 1))
def test_one_more_question_never_lowers_a_p(p_values: list[float], another: float) -> None:
    before, after = statistics.holm(p_values), statistics.holm([*p_values, another])
    assert all(old <= new + 1e-12 for old, new in zip(before, after, strict=False))


FEW = st.lists(st.floats(0.1, 10), min_size=3, max_size=6)


@given(FEW, FEW)
def test_the_other_side_sees_the_same_with_the_other_sign(ours: list[float], theirs: list[float]) -> None:
    one = statistics.difference(seeds(ours), seeds(theirs))
    other = statistics.difference(seeds(theirs), seeds(ours))
    assert one and other and one.value == pytest.approx(-other.value)
    assert (one.p is None) == (other.p is None)
    if one.low is not None and other.high is not None:
        assert one.low == pytest.approx(-other.high) and one.low <= one.value <= (one.high or 0.0) + 1e-9


@given(FEW, FEW)
def test_scipy_says_the_same(ours: list[float], theirs: list[float]) -> None:
    assume(all(np.ptp(side) > 1e-6 for side in (ours, theirs)))
    estimate, test = statistics.difference(seeds(ours), seeds(theirs)), ttest_ind(ours, theirs, equal_var=False)
    assert estimate is not None and estimate.p == pytest.approx(test.pvalue, rel=1e-9)
    assert (estimate.low, estimate.high) == pytest.approx(tuple(test.confidence_interval(0.95)), rel=1e-9, abs=1e-9)


@given(st.lists(st.tuples(st.floats(0.1, 10), st.floats(0.1, 10)), min_size=5, max_size=9))
def test_scipy_says_the_same_of_pairs(pairs: list[tuple[float, float]]) -> None:
    ours, theirs = (np.array(side) for side in zip(*pairs, strict=True))
    assume(np.ptp(ours - theirs) > 1e-6)
    estimate, test = statistics.difference(seeds(ours), seeds(theirs), paired=True), ttest_rel(ours, theirs)
    assert estimate is not None and estimate.paired and estimate.p == pytest.approx(test.pvalue, rel=1e-9)
    assert (estimate.low, estimate.high) == pytest.approx(tuple(test.confidence_interval(0.95)), rel=1e-9, abs=1e-9)
