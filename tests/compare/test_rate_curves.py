"""Rate curves: widths by hand and by a reference in plain loops, intervals, open ends, and what each output shows."""

from __future__ import annotations

import csv
import io
import json
import math
import re
from pathlib import Path

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from msaccel.compare.groups import ComparisonSet
from msaccel.compare.method_runs import MethodRuns
from msaccel.compare.rate_curves import RateCurve, rate_curves
from msaccel.compare.render import export, markdown, terminal, write
from msaccel.compare.runs import Record

from .conftest import Planted

RATES = ("0.01", "0.02", "0.04", "0.08", "0.16")
LR = "optimizer.lr"


def curve(means: list[float], seeds: int = 4, spread: float = 0.0, rates: tuple[str, ...] = RATES) -> RateCurve:
    draw = np.random.default_rng(0)
    family = []
    for rate, mean in zip(rates, means, strict=True):
        accuracies = [mean + spread * draw.normal() for _ in range(seeds)]
        runs = [
            Record("", "", "", "FINISHED", 0, 0, {"seed": str(seed), LR: rate}, {}, {"val/accuracy": one})
            for seed, one in enumerate(accuracies)
        ]
        family.append(MethodRuns({"accel": "none", LR: rate}, runs))
    found = ComparisonSet({}, family, [])
    (one,) = rate_curves(found, ComparisonSet({}, family[:1], []), LR)
    return one


@pytest.mark.parametrize(
    ("means", "width", "ends"),
    [
        ([0.90, 0.96, 0.97, 0.965, 0.90], 1.0, ()),  # 0.04 and 0.08
        ([0.90, 0.94, 0.97, 0.94, 0.90], 0.0, ()),
        ([0.966, 0.96, 0.97, 0.966, 0.90], 3.0, ("below",)),
        ([0.90, 0.94, 0.95, 0.96, 0.97], 0.0, ("above",)),
        ([0.97, 0.97, 0.97, 0.97, 0.97], 4.0, ("below", "above")),
        ([0.90, 0.96, 0.97, 0.1, 0.1], 0.0, ()),
    ],
)
def test_the_width_is_the_range_within_half_a_point(means: list[float], width: float, ends: tuple[str, ...]) -> None:
    found = curve(means)
    assert (found.width, found.open) == (pytest.approx(width), ends)
    assert found.interval == pytest.approx((width, width)), "nothing varies with the seed"


@settings(max_examples=30)
@given(st.lists(st.floats(0.9, 0.99), min_size=5, max_size=5), st.integers(3, 5))
def test_a_reference_in_plain_loops_says_the_same(means: list[float], seeds: int) -> None:
    best = max(means)
    good = [float(rate) for rate, mean in zip(RATES, means, strict=True) if mean >= best - 0.005 + 1e-9]
    assume(all(abs(mean - best + 0.005) >= 1e-9 for mean in means))
    found = curve(means, seeds)
    assert found.width == pytest.approx(math.log(good[-1] / good[0], 2))
    assert ("below" in found.open, "above" in found.open) == (good[0] == 0.01, good[-1] == 0.16)


def test_the_interval_is_a_bootstrap_over_seeds_and_needs_three() -> None:
    noisy = curve([0.90, 0.964, 0.97, 0.964, 0.90], 5, 0.002)
    assert noisy.interval and (noisy.interval[0], noisy.interval[1], noisy.width) == pytest.approx((0, 2, 2))
    assert curve([0.90, 0.96, 0.97, 0.96, 0.90], 2).interval is None


def test_the_interval_holds_the_true_width() -> None:
    """Of a plateau of two doublings whose edges are clear: in 19 of 20 studies at least."""
    held = 0
    for study in range(60):
        draw = np.random.default_rng(study)
        means = [0.90, 0.9695, 0.97, 0.9695, 0.90]
        found = curve([mean + draw.normal(0, 0.0003) for mean in means], 8, 0.001)
        held += found.interval is not None and found.interval[0] <= 2 + 1e-9 and found.interval[1] >= 2 - 1e-9
    assert held >= 57


@pytest.fixture
def store(planted: Planted) -> Planted:
    for accel, best in (("none", 1), ("clip", 3)):
        for place, rate in enumerate(RATES[:4]):
            for seed in range(3):
                accuracy = 0.97 - 0.02 * abs(place - best) + seed / 1000
                method = {"accel": accel, "optimizer__lr": rate}
                planted.run(accuracy, seed, metric_val__accuracy=accuracy, **method)
    for seed in range(3):
        for accel in ("none", "clip"):
            planted.run(0.1, seed, "FAILED", accel=accel, optimizer__lr="1.28", tag_diverged="true")
    return planted


def test_every_output_shows_them(store: Planted, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    report = store.report(LR)
    terminal.show(report)
    said = re.sub(r"[\s;]+", " ", capsys.readouterr().out)
    page = write.write(store.client, report, tmp_path / "report").read_text()
    for text in (said, markdown.document(report).replace("\\", ""), page):
        assert "0.01 0.02 0.04 0.08 1.28" in text and "0.0 [0.0, 0.0]" in text
        assert "log2 of the highest over the lowest rate" in text
    assert "Validation accuracy over the rate" in page
    rows = [row for row in csv.DictReader(io.StringIO(export.as_csv(report))) if row["measure"] == "rate_width"]
    assert [(row["method"], row["value"], row["notes"]) for row in rows] == [
        ("none, optimizer.lr=0.02", "0.0", ""),
        ("clip, optimizer.lr=0.08", "0.0", ""),
    ]
    (content,) = json.loads(export.as_json(report))["sets"]
    points = content["rates"][1]["points"]
    assert points[-1] == {"rate": 1.28, "mean": None, "low": None, "high": None}
    assert points[3]["mean"] == pytest.approx(0.971) and points[3]["low"] < 0.97 < points[3]["high"]


def test_an_edge_is_open(planted: Planted) -> None:
    for rate, accuracy in (("0.01", 0.9), ("0.02", 0.97)):
        planted.runs([accuracy, accuracy + 0.001, accuracy - 0.001], optimizer__lr=rate)
    text = markdown.document(planted.report(LR))
    assert r"at least 0.0 [0.0, 0.0], open above" in text
    assert planted.report().sections[0].rates == []


def test_a_method_that_never_trains_has_no_good_rates(planted: Planted) -> None:
    for rate in ("0.01", "0.02", "0.04"):
        planted.runs([0.97, 0.971, 0.969], optimizer__lr=rate)
        planted.runs([0.1, 0.101, 0.099], accel="clip", optimizer__lr=rate)
    assert [one.method.accel for one in planted.report(LR).sections[0].rates] == ["none"]
