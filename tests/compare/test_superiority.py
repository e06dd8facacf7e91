"""Which side ends above, over all runs: SciPy and statsmodels, plain loops, sides that do not overlap, false alarms."""

from __future__ import annotations

import csv
import io
import json
import math
import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from scipy.stats import brunnermunzel, norm
from scipy.stats import t as student
from statsmodels.stats.nonparametric import rank_compare_2indep
from statsmodels.stats.proportion import proportion_confint

from msaccel.compare.baselines import BaselinePair
from msaccel.compare.method_runs import MethodRuns
from msaccel.compare.render import export, markdown, terminal, write
from msaccel.compare.runs import Record
from msaccel.compare.statistics import Estimate
from msaccel.compare.superiority import superiority
from tests.running import soak

from .conftest import Planted
from .equal_methods import tuned

FAILED = 0.1
SPREAD = [0.0, 0.001, -0.001, 0.0005, -0.0005] * 4
NOISES = ["normal", "skewed", "diverging"]


def compared(ours: Sequence[float], theirs: Sequence[float], paired: bool = False) -> Estimate:
    """The estimate for runs with these final accuracies, of which those below 0.45 do not train."""
    sides = []
    for name, ends in (("clip", ours), ("none", theirs)):
        runs = [
            Record("", "", "", "FINISHED", 0, 1, {"seed": str(seed)}, {}, {"final/accuracy": float(end)})
            for seed, end in enumerate(ends)
        ]
        sides.append(MethodRuns({"accel": name}, runs, least=0.45))
    found = superiority(BaselinePair(*sides, "", ()), paired)
    assert found is not None
    return found


def test_six_runs_by_hand() -> None:
    """0.9 is above all 3, 0.8 above 1 and equal to 1; two that fail tie, whatever their accuracies."""
    found = compared([0.9, 0.8, 0.12], [0.85, 0.8, 0.1])
    assert found.value == pytest.approx((3 + 1.5 + 0.5) / 9)
    assert found.n == (3, 3) and found.nothing == 0.5 and found.low is None and found.p is None
    assert compared([0.9, 0.1, 0.1], [0.11, 0.8, 0.12]).value == pytest.approx((2 + 1 + 2 * (0.5 + 0.5 + 0)) / 9)


RUNS = st.lists(st.integers(0, 12).map(lambda value: 0.5 + value / 25), min_size=6, max_size=12)


@given(RUNS, RUNS)
def test_the_libraries_say_the_same(ours: list[float], theirs: list[float]) -> None:
    found, runs = compared(ours, theirs), min(len(ours), len(theirs))
    reference = rank_compare_2indep(ours, theirs)
    assert found.value == pytest.approx(reference.prob1)
    assume(reference.var_prob > 1e-9)
    assert found.p == pytest.approx(max(brunnermunzel(ours, theirs).pvalue, 2 / 2**runs), rel=1e-6, abs=1e-12)
    low, high = reference.conf_int()
    of_agreeing = proportion_confint(runs, runs, method="beta")[0]
    assert found.low == pytest.approx(max(0, min(low, of_agreeing)))
    assert found.high == pytest.approx(min(1, max(high, 1 - of_agreeing)))
    margin = 0.1
    expected = reference.tost_prob_superior(0.5 - margin, 0.5 + margin).pvalue
    assert found.equivalence_p(margin) == pytest.approx(expected, rel=1e-6, abs=1e-12)


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9)), min_size=6, max_size=10))
def test_pairs_of_a_seed_are_those_of_plain_loops(ends: list[tuple[int, int]]) -> None:
    n, ours, theirs = len(ends), *zip(*((0.5 + a / 20, 0.5 + b / 20) for a, b in ends), strict=True)
    win = {
        (i, j): 1.0 if ours[i] > theirs[j] else 0.5 if ours[i] == theirs[j] else 0.0 for i in range(n) for j in range(n)
    }
    of_seed = [sum(win[i, j] + win[j, i] for j in range(n) if j != i) / (n - 1) for i in range(n)]
    found, mean = compared(ours, theirs, paired=True), sum(of_seed) / n / 2
    assert found.value == pytest.approx(mean) and found.paired
    every = sum(win.values()) - sum(win[i, i] for i in range(n))
    without = [(every - (n - 1) * one) / (n - 1) / (n - 2) for one in of_seed]  # the probability without each seed
    error = math.sqrt((n - 1) / n * sum((one - mean) ** 2 for one in without))
    assume(error > 1e-9)
    assert found.error == pytest.approx(error)
    assert found.p == pytest.approx(max(2 * student.sf(abs(mean - 0.5) / error, n - 1), 2 / 2**n))


@pytest.mark.parametrize("n", [6, 20])
@pytest.mark.parametrize("paired", [False, True])
def test_sides_that_do_not_overlap_are_as_sure_as_pairs_that_agree(n: int, paired: bool) -> None:
    above, below = np.linspace(0.9, 0.95, n), np.linspace(0.5, 0.8, n)
    found = compared(above, below, paired)
    low, high = proportion_confint(n, n, method="beta")
    assert (found.value, found.low, found.high, found.p) == (1, pytest.approx(low), high, 2 / 2**n)
    other = compared(below, above, paired)
    assert (other.value, other.low, other.high, other.p) == (0, 0, pytest.approx(1 - low), found.p)
    nearly = compared([*above[:-1], 0.79], below, paired)
    assert nearly.p and found.p and nearly.p >= found.p and nearly.low is not None and nearly.low <= low


def test_what_has_no_spread_has_no_interval() -> None:
    for ends in ([FAILED] * 8, [0.9] * 8):
        found = compared(ends, ends)
        assert (found.value, found.low, found.high, found.p, found.error) == (0.5, None, None, None, None)
    seeds = np.linspace(0.8, 0.9, 8)
    found = compared(seeds + 1e-6, seeds, paired=True)
    assert (found.value, found.p) == (0.5, None), "two runs of a seed are no two runs"
    five = compared([0.9] * 5, [0.8] * 5)
    assert (five.value, five.p, five.low) == (1, None, None), "no five runs can show it"


def test_all_that_fail_are_below_all_that_train() -> None:
    found = compared([0.5] * 10, [FAILED] * 10)
    assert found.value == 1 and found.p == 2 / 2**10


def drawn(draw: np.random.Generator, n: int, noise: str, common: np.ndarray, of_seed: float) -> np.ndarray:
    own = 1 - draw.exponential(size=n) if noise == "skewed" else draw.normal(size=n)
    ends = 0.9 + 0.001 * (math.sqrt(of_seed) * common + math.sqrt(1 - of_seed) * own)
    return np.where(draw.random(n) < 0.1, FAILED, ends) if noise == "diverging" else ends


@pytest.mark.parametrize("noise", NOISES)
@pytest.mark.parametrize("n", [5, 10, pytest.param(20, marks=pytest.mark.slow)])
@pytest.mark.parametrize("of_seed", [0.0, 0.9])
def test_equal_methods_are_hardly_ever_called_different(n: int, noise: str, of_seed: float) -> None:
    draw, studies = np.random.default_rng(n), 1000
    wrong = missed = 0
    for _ in range(studies):
        common = draw.normal(size=n)
        found = compared(*(drawn(draw, n, noise, common, of_seed) for _ in range(2)), paired=True)
        wrong += found.p is not None and found.p <= 0.05
        missed += found.low is not None and not found.low <= 0.5 <= (found.high or 0)
    margin = 2 * math.sqrt(0.05 * 0.95 / studies)
    assert wrong / studies <= 0.055 + margin and missed / studies <= 0.055 + margin
    assert wrong or of_seed or n == 5, "a test that never finds anything holds its error too"


@pytest.mark.parametrize("fails", [0.3, 0.5])
@pytest.mark.parametrize("n", [6, 10])
def test_one_that_is_better_and_fails_as_much_more_often_is_not_called_different(n: int, fails: float) -> None:
    """With half of its runs it ends above all of the baseline's, which is a probability of one half."""
    draw, studies = np.random.default_rng(n), 1000
    better = math.sqrt(2) * norm.ppf(0.5 / (1 - fails)) if fails < 0.5 else 50
    found = [
        compared(
            np.where(draw.random(n) < fails, FAILED, 0.8 + 0.001 * (better + draw.normal(size=n))),
            0.8 + 0.001 * draw.normal(size=n),
            paired=True,
        ).p
        for _ in range(studies)
    ]
    assert np.mean([p is not None and p <= 0.05 for p in found]) <= 0.055 + 2 * math.sqrt(0.05 * 0.95 / studies)


@pytest.mark.slow
@pytest.mark.parametrize("noise", NOISES)
@pytest.mark.parametrize("n", [10, *soak(5, 6, 20, 40)])
@pytest.mark.parametrize(("curve", "of_seed"), [([-4, 0, -1], 0.9), ([0, 0, 0, 0, 0], 0.0)], ids=["peaked", "flat"])
def test_equal_methods_that_are_tuned_are_neither_different_nor_falsely_equivalent(
    curve: list[float], of_seed: float, n: int, noise: str
) -> None:
    draw = np.random.default_rng(n)
    found = [tuned(draw, n, np.array(curve, float), noise, of_seed)["superiority"] for _ in range(300)]
    assert np.mean([one.p is not None and one.p <= 0.05 for one in found]) <= 0.055 + 0.025
    # As if the methods differed by exactly the margin.
    shifted = [replace(one, value=one.value + 0.1).equivalence_p(0.1) for one in found]
    assert np.mean([p is not None and p <= 0.05 for p in shifted]) <= 0.055 + 0.025


def test_the_choice_of_a_rate_adds_to_the_error() -> None:
    """Which one of four equal rates wins is chance."""
    chosen, fixed = (
        np.mean(
            [
                tuned(np.random.default_rng(one), 20, np.zeros(rates), "normal", 1e-9)["superiority"].error or 0
                for one in range(20)
            ]
        )
        for rates in (4, 1)
    )
    assert chosen > 1.1 * fixed


@pytest.fixture
def store(planted: Planted) -> Planted:
    """11 of 20 runs train without clipping, at 0.98, and all with it, a little above."""
    planted.runs([0.98 + one for one in SPREAD[:11]] + [FAILED] * 8 + [math.nan])
    planted.runs([0.9802 + one for one in SPREAD], accel="clip")
    return planted


@pytest.mark.slow
def test_every_output_shows_it_where_some_runs_fail(
    store: Planted, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    report = store.report()
    (comparison,) = report.sections[0].comparisons
    found = comparison.estimates["superiority"]
    assert found.value == pytest.approx((20 * 9 + sum(a + 0.0002 > b for a in SPREAD for b in SPREAD[:11])) / 400)
    assert found.p is not None and found.p < 0.01 and "superiority" not in comparison.verdicts
    terminal.show(report)
    said = re.sub(r"\s+", " ", capsys.readouterr().out)
    page = write.write(store.client, report, tmp_path / "report").read_text()
    for text in (said, markdown.document(report).replace("\\", ""), page):
        words = f"clip ends above in {100 * found.value:.1f} % of all pairs [{100 * found.low:.1f}, "
        assert words in re.sub(r"\s+", " ", text) and "failed runs lowest" in text
    (row,) = [row for row in csv.DictReader(io.StringIO(export.as_csv(report))) if row["measure"] == "superiority"]
    assert (row["method"], row["baseline"], row["n"], row["against"]) == ("clip", "none", "20", "probability")
    assert float(row["value"]) == found.value and float(row["low"]) == found.low and row["verdict"] == ""
    estimates = json.loads(export.as_json(report))["sets"][0]["comparisons"][0]["estimates"]
    assert estimates["superiority"]["value"] == found.value and estimates["superiority"]["is_probability"]


def test_without_accuracies_there_is_none(planted: Planted) -> None:
    for accel in ("none", "clip"):
        for seed in range(3):
            planted.run(None, seed, accel=accel, metric_throughput__samples_per_sec=100.0 + seed)  # type: ignore[arg-type]
    assert "superiority" not in planted.section().comparisons[0].estimates
