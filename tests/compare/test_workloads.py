"""Over workloads: examples by hand, SciPy's Brunner-Munzel test, false alarms, and never a mean of points."""

from __future__ import annotations

import csv
import io
import json
import math
import re
from collections.abc import Sequence
from pathlib import Path
from statistics import fmean

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from scipy.special import stdtr
from scipy.stats import brunnermunzel

from msaccel.compare import superiority, workloads
from msaccel.compare.render import export, markdown, terminal, write

from .conftest import Planted

CIFAR = {"model__name": "resnet20", "data__name": "cifar10", "digest": "d2"}
TARGET = {"train__target_accuracy": "0.5", "metric_time__train_s": 60.0, "metric_time__to_target_s": 30.0}


@pytest.fixture
def store(planted: Planted) -> Planted:
    """Clipping is as good on MNIST and better on CIFAR-10, at 2 and 0.5 times the speed, and reaches targets later."""
    for seed in range(5):
        for place, workload in enumerate(({}, CIFAR)):
            base = {**workload, **TARGET, "metric_samples__to_target": 10_000.0}
            clip = {**workload, **TARGET, "metric_samples__to_target": [18_000.0, 12_000.0][place], "accel": "clip"}
            speeds = 1000.0 + seed, (1000.0 + seed) * [2.0, 0.5][place]
            middle = [0.98, 0.7][place] + seed / 1000
            planted.run(middle, seed, metric_throughput__samples_per_sec=speeds[0], **base)
            planted.run(middle + place / 10, seed, metric_throughput__samples_per_sec=speeds[1], **clip)
    return planted


def test_two_workloads_by_hand(store: Planted) -> None:
    """A half where five equal runs meet, and one where all are above; √(2 × 0.5) is 1."""
    (found,) = store.report().workloads
    assert found.improvement == pytest.approx((0.5 + 1) / 2) and found.speed == pytest.approx(1)
    assert found.profile == [(0, 1), (0.5, 1), (1, 1)] and len(found.workloads) == 2
    assert found.improvement_interval and found.improvement_interval[0] < 0.75 < found.improvement_interval[1]
    assert found.speed_interval == pytest.approx((1, 1), abs=0.01)


def test_every_output_shows_it_once_and_first(
    store: Planted, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    report = store.report()
    terminal.show(report)
    said = re.sub(r"[\s;]+", " ", capsys.readouterr().out)
    page = write.write(store.client, report, tmp_path / "report").read_text()
    for text in (said, markdown.document(report), page):
        place = text.index("0.75 [")
        assert text.count("0.75 [") == 1 and place < text.index("samples to target", place)
        assert "50% against 100%" in text and "1.000 × [" in text and "are not averaged" in text
    rows = list(csv.DictReader(io.StringIO(export.as_csv(report))))
    assert [row["measure"] for row in rows[:2]] == ["probability_of_improvement", "geometric_mean_speed"]
    assert json.loads(export.as_json(report))["workloads"][0]["improvement"] == 0.75


def test_one_workload_or_other_settings_have_no_table(planted: Planted) -> None:
    for steps, workload in (("2", {}), ("4", CIFAR)):
        planted.runs([0.9, 0.91, 0.92], **workload)
        planted.runs([0.9, 0.91, 0.92], accel="accum", accel__accum__steps=steps, **workload)
        assert planted.report().workloads == [] and "Over workloads" not in markdown.document(planted.report())


def test_a_workload_counts_once(planted: Planted) -> None:
    for workload in ({}, {"device__threads": "1"}, CIFAR):
        for accel in ("none", "clip"):
            planted.runs([0.9, 0.91, 0.92], accel=accel, **workload)
    assert planted.report().workloads == []


def test_a_run_that_diverged_is_the_worst_and_two_runs_have_no_interval(planted: Planted) -> None:
    for workload in ({}, CIFAR):
        planted.runs([0.9, 0.91], **workload)
        planted.run(0.95, 0, accel="clip", **workload)
        planted.run(0.1, 1, "FAILED", accel="clip", tag_diverged="true", **workload)
    (found,) = planted.report().workloads
    assert found.improvement == 0.5 and found.improvement_interval is None
    assert found.speed is None and found.profile is None


def test_the_choice_of_rates_widens_the_interval(planted: Planted) -> None:
    """Each of two rates seems best to about half of the seeds, and one of them is better by 5 points."""
    for workload in ({}, CIFAR):
        for seed in range(5):
            for rate in ("0.1", "0.2"):
                at = {"optimizer__lr": rate, "metric_val__accuracy": 0.9 + 0.01 * ((seed % 2) == (rate == "0.1"))}
                final = 0.9 + seed / 1000 + 0.05 * (rate == "0.2")
                planted.run(final, seed, **at, **workload)
                planted.run(final + 0.0015, seed, accel="clip", **at, **workload)
    report = planted.report("optimizer.lr")
    sets = [(section.title, section.found, section.comparisons) for section in report.sections]
    (with_choice,), (without,) = report.workloads, workloads.over_workloads(sets)
    assert with_choice.improvement == without.improvement
    wide, narrow = with_choice.improvement_interval, without.improvement_interval
    assert wide and narrow and wide[0] < narrow[0] - 0.05 and narrow[1] <= wide[1]


def judged(ours: Sequence[float], theirs: Sequence[float]) -> tuple[float, list[tuple[float, float]]]:
    chance, errors = superiority.chance(np.array(ours), np.array(theirs))
    return chance, workloads.with_freedom(errors, (len(ours), len(theirs)))


RUNS = st.lists(st.floats(0, 1).map(lambda value: round(value, 1)), min_size=3, max_size=8)


@given(RUNS, RUNS)
def test_the_test_of_brunner_and_munzel_says_the_same(ours: list[float], theirs: list[float]) -> None:
    chance, errors = judged(ours, theirs)
    pairs = [(one > other) + 0.5 * (one == other) for one in ours for other in theirs]
    assert chance == pytest.approx(fmean(pairs))
    total = math.hypot(*(error for error, _ in errors))
    assume(total >= 1e-9 and abs(chance - 0.5) >= 1e-9)
    freedom = total**4 / sum(error**4 / own for error, own in errors)
    p = 2 * stdtr(freedom, -abs(chance - 0.5) / total)
    assert p == pytest.approx(brunnermunzel(ours, theirs).pvalue, rel=1e-6, abs=1e-12)


def test_equal_methods_hardly_ever_improve() -> None:
    draw, studies, alarms = np.random.default_rng(0), 2000, 0
    for _ in range(studies):
        found = [judged(*draw.normal(size=(2, 5))) for _ in range(3)]
        half_width = workloads._half_width([error for _, errors in found for error in errors], 3)
        alarms += half_width is not None and abs(fmean(chance for chance, _ in found) - 0.5) > half_width
    assert alarms / studies <= 0.055 + 2 * math.sqrt(0.05 * 0.95 / studies)
