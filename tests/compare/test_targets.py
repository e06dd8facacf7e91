"""Times to the target: textbook data, a reference that shares no code, false alarms, and what each output shows."""

from __future__ import annotations

import csv
import io
import json
import math
import re
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from scipy.stats import logrank, t, ttest_ind

from msaccel.compare import statistics, targets
from msaccel.compare.render import export, markdown, terminal, write
from msaccel.compare.render.target_table import target_rows
from msaccel.compare.targets import TargetTimes

from .conftest import Planted

# Weeks of remission of Freireich et al. (1963), with and without 6-mercaptopurine; a minus sign marks censored ones.
TREATED = [6, 6, 6, -6, 7, -9, 10, -10, -11, 13, 16, -17, -19, -20, 22, 23, -25, -32, -32, -34, -35]
PLACEBO = [1, 1, 2, 2, 3, 4, 4, 5, 5, 8, 8, 8, 8, 11, 11, 12, 12, 15, 17, 22, 23]


def seen(weeks: Sequence[float]) -> TargetTimes:
    at = np.array(weeks, float)
    return TargetTimes(list(range(len(at))), abs(at), at > 0)


def test_the_curve_is_that_of_the_textbook() -> None:
    """Kleinbaum and Klein, Survival Analysis (2012), table 2.1: still in remission after each week."""
    times, shares = seen(TREATED).curve()
    kept = dict(zip(times, 1 - shares, strict=True))
    table = {6: 0.8571, 7: 0.8067, 10: 0.7529, 13: 0.6902, 16: 0.6275, 22: 0.5378, 23: 0.4482}
    assert {week: round(kept[week], 4) for week in table} == table
    assert (seen(TREATED).median, seen(PLACEBO).median) == (23, 8)


@pytest.mark.parametrize("reached", [12, 19])
def test_the_median_is_known_where_exactly_half_reach_the_target(reached: int) -> None:
    assert seen([*range(1, reached + 1), *[-50] * reached]).median == reached


def test_the_log_rank_test_is_that_of_the_textbook() -> None:
    """Ibid., section 2.4: 9 events against 19.25 expected, and a chi² of 16.79, whose p is below 0.0001."""
    treated, placebo = seen(TREATED), seen(PLACEBO)
    at, reached = (np.concatenate(both) for both in ((treated.at, placebo.at), (treated.reached, placebo.reached)))
    assert targets.scores(at, reached)[: len(TREATED)].sum() == pytest.approx(9 - 19.25, abs=0.005)
    assert targets.log_rank(treated, placebo) <= 0.0005


def test_four_runs_by_hand() -> None:
    """At 1 and 2 one of 4 and one of 3 reach it, 3 and 4 are given up: 3/4, then 3/4 × 2/3 have not."""
    times, shares = seen([1, 2, -3, -4]).curve()
    assert dict(zip(times, 1 - shares, strict=True)) == pytest.approx({1: 0.75, 2: 0.5, 3: 0.5, 4: 0.5})
    found = targets.estimate(seen([1, 2, -4]), seen([2, -4, -4]))
    assert found and found.means == pytest.approx((7 / 3, 10 / 3)) and found.limit == 4
    assert found.reached == (2, 1) and found.ratio.value == pytest.approx(0.7)


TIMES = st.lists(st.tuples(st.integers(1, 6), st.booleans()), min_size=3, max_size=6)


@given(TIMES, TIMES)
def test_a_reference_in_plain_loops_says_the_same(ours: list[tuple[int, bool]], theirs: list[tuple[int, bool]]) -> None:
    every, expected = ours + theirs, 0.0
    for when in {at for at, reached in every if reached}:
        everyone, mine = (sum(at >= when for at, _ in side) for side in (every, ours))
        expected += every.count((when, True)) * mine / everyone
    at, reached = (np.array(column) for column in zip(*every, strict=True))
    observed = sum(reached for _, reached in ours)
    assert targets.scores(at, reached)[: len(ours)].sum() == pytest.approx(observed - expected)
    left, area = 1.0, 0.0  # the area under the curve up to the first run that was given up is the restricted mean
    side = seen([at if reached else -at for at, reached in ours])
    limit = min(side.limit, 6)
    for when in range(int(limit)):
        dying = sum(reached and at == when for at, reached in ours)
        left *= 1 - dying / sum(at >= when for at, _ in ours) if dying else 1
        area += left
    assert side.within(limit).at.mean() == pytest.approx(area)


@given(st.lists(st.floats(1, 100), min_size=3, max_size=8), st.lists(st.floats(1, 100), min_size=3, max_size=8))
def test_the_interval_of_a_ratio_holds_what_a_test_of_it_accepts(ours: list[float], theirs: list[float]) -> None:
    method, baseline = np.array(ours), np.array(theirs)
    found = statistics.ratio_of_means(method, baseline)
    assume(found.low is not None and found.high is not None and min(np.ptp(method), np.ptp(baseline)) >= 1e-3)
    freedom = ttest_ind(method, baseline, equal_var=False).df
    for bound in {found.low, found.high} - {0.0}:
        error = math.hypot(method.std(ddof=1) / len(ours) ** 0.5, bound * baseline.std(ddof=1) / len(theirs) ** 0.5)
        assert abs(method.mean() - bound * baseline.mean()) / error == pytest.approx(t.ppf(0.975, freedom), rel=1e-5)


@pytest.mark.parametrize(
    ("n", "share"),
    [(5, 0.5), pytest.param(5, 1.0, marks=pytest.mark.slow), pytest.param(10, 0.8, marks=pytest.mark.soak)],
)
def test_equal_methods_hardly_ever_reach_it_at_other_times(n: int, share: float) -> None:
    """Of ten evaluations in a budget that so many runs reach the target in; times are skewed."""
    draw, studies = np.random.default_rng(n), 1000
    budget = float(np.quantile(draw.lognormal(0, 0.5, 10_000), share)) if share < 1 else 1e9
    step = min(budget, 2.0) / 10
    alarms, missed = 0, 0
    for _ in range(studies):
        sides = [np.ceil(draw.lognormal(0, 0.5, n) / step) * step for _ in range(2)]
        found = targets.estimate(*(seen(np.where(side > budget, -budget, side)) for side in sides))
        if found and found.ratio.p is not None:
            alarms += found.ratio.p <= 0.05
            missed += found.ratio.low is not None and not found.ratio.low <= 1 <= (found.ratio.high or 0)
    margin = 2 * math.sqrt(0.05 * 0.95 / studies)
    assert alarms / studies <= 0.055 + margin and missed / studies <= 0.055 + margin


def test_at_many_seeds_it_is_the_test_of_scipy() -> None:
    draw = np.random.default_rng(0)
    ours, theirs = draw.lognormal(0, 0.5, 30), draw.lognormal(0.2, 0.5, 30)
    assert targets.log_rank(seen(ours), seen(theirs)) == pytest.approx(logrank(ours, theirs).pvalue, abs=0.02)


FAST = {"train__target_accuracy": "0.9", "metric_throughput__samples_per_sec": 1000.0, "metric_time__train_s": 60.0}


@pytest.fixture
def store(planted: Planted) -> Planted:
    """Without a method two of five miss the target in 60,000 samples; clipping reaches it early, or diverges."""
    for seed in range(5):
        reached = {"metric_samples__to_target": 40_000.0 + 1000 * seed, "metric_time__to_target_s": 40.0 + seed}
        early = {"metric_samples__to_target": 20_000.0 + 1000 * seed, "metric_time__to_target_s": 20.0 + seed}
        planted.run(0.91 + seed / 1000, seed, tag_updates="500", **FAST, **(reached if seed < 3 else {}))
        if seed < 4:
            planted.run(0.92 + seed / 1000, seed, accel="clip", tag_updates="500", **FAST, **early)
    planted.run(0.1, 4, "FAILED", accel="clip", tag_diverged="true", train__target_accuracy="0.9")
    return planted


def test_runs_that_miss_the_target_count_with_their_budget(store: Planted) -> None:
    (comparison,) = store.section().comparisons
    samples = comparison.targets["samples_to_target"]
    assert samples.limit == 60_000 and samples.reached == (4, 3)
    assert samples.means == pytest.approx((146_000 / 5, 243_000 / 5))
    assert samples.ratio.p is not None and samples.ratio.p == samples.p_adjusted and 0.05 < samples.ratio.p < 0.3
    assert comparison.targets["updates_to_target"].means == (180, 260)
    assert comparison.targets.keys() == {"samples_to_target", "updates_to_target", "seconds_to_target"}


def test_every_output_shows_them(store: Planted, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    report = store.report()
    terminal.show(report)
    said = re.sub(r"[\s;]+", " ", capsys.readouterr().out)
    page = write.write(store.client, report, tmp_path / "report").read_text()
    for text in (said, markdown.document(report), page):
        assert all(one in text for one in ("4 of 5", "3 of 5", "22,000", "42,000", "0.601 × ["))
        assert "a run that misses the target counts with the whole budget" in text
    assert "Share of seeds that reached the target" in page
    rows = [row for row in csv.DictReader(io.StringIO(export.as_csv(report))) if row["measure"] == "samples_to_target"]
    assert [(row["method"], row["n"], row["reached"], row["limit"]) for row in rows] == [
        ("none", "5", "3", "60000.0"),
        ("clip", "5", "4", "60000.0"),
    ]
    assert [float(row["mean"]) for row in rows] == [48_600, 29_200] and float(rows[1]["value"]) < 1
    (content,) = json.loads(export.as_json(report))["sets"]
    assert content["comparisons"][0]["targets"]["samples_to_target"]["reached"] == [4, 3]
    assert content["methods"][1]["targets"]["samples_to_target"]["reached"] == [True] * 4 + [False]


@pytest.mark.parametrize(("unfinished", "limit"), [(0, None), (1, 60_000)])
def test_a_run_that_stopped_at_the_target_does_not_say_what_the_budget_was(
    planted: Planted, unfinished: int, limit: float | None
) -> None:
    """One seed of the method diverged: it counts with the budget of a run that used it all, if there is one."""
    stops = {"train__target_accuracy": "0.9", "train__stop_at_target": "True", "tag_updates": "500"}
    for seed in range(5):
        for name, samples in (("clip", 20_000.0 + 1000 * seed), ("none", 40_000.0 + 1000 * seed)):
            if (name, seed) == ("clip", 4):
                planted.run(0.1, seed, "FAILED", accel=name, tag_diverged="true", **stops)
                continue
            spent = 60.0 if name == "clip" and seed < unfinished else samples / 1000
            used = {"metric_throughput__samples_per_sec": 1000.0, "metric_time__train_s": spent}
            reached = {} if spent == 60.0 else {"metric_samples__to_target": samples, "metric_time__to_target_s": spent}
            planted.run(0.91, seed, accel=name, **stops, **used, **reached)
    (comparison,) = planted.section().comparisons
    found = comparison.targets.get("samples_to_target")
    assert (found.limit if found else None) == limit
    assert "updates_to_target" in comparison.targets
    (row,) = [row for row in target_rows(planted.section()) if row[0] == "clip"]
    assert row[2] == f"{4 - unfinished} of 5"


def test_a_method_that_always_diverges_never_reaches_it(store: Planted) -> None:
    for seed in range(5):
        store.run(0.1, seed, "FAILED", accel="adasum", tag_diverged="true", train__target_accuracy="0.9")
    report = store.report()
    lost = next(one for one in report.sections[0].comparisons if one.pair.method.accel == "adasum")
    assert lost.targets["samples_to_target"].means[0] == 60_000 and "0 of 5" in markdown.document(report)
    assert json.loads(export.as_json(report)) and export.as_csv(report)


def test_without_a_target_nothing_is_said_about_one(planted: Planted) -> None:
    planted.runs([0.9, 0.91, 0.92])
    planted.runs([0.9, 0.91, 0.92], accel="clip")
    assert not planted.section().comparisons[0].targets and "target" not in markdown.document(planted.report())
