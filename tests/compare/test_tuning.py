"""The best rate of each method is chosen on the validation split, with as many trials on every side, or not at all."""

from __future__ import annotations

import json
import math

import pytest

from msaccel.compare.render import export
from msaccel.compare.verdicts import Verdict
from msaccel.errors import UserError

from .conftest import Planted

RATES = {"0.01": 0.90, "0.02": 0.94, "0.05": 0.92}


def grid(planted: Planted, best: str = "0.02", seeds: int = 1, **given: object) -> None:
    for rate, validation in RATES.items():
        top = 0.95 if rate == best else validation
        for seed in range(seeds):
            noise = (seed * 7 % 5 - 2) / 1000
            planted.run(0.9 + noise, seed, optimizer__lr=rate, metric_val__accuracy=top + noise, **given)


def test_each_side_at_its_own_best_rate(planted: Planted) -> None:
    grid(planted, seeds=3)
    grid(planted, "0.05", seeds=3, accel="clip")
    section = planted.section("optimizer.lr")
    assert [(m.accel, m.settings["optimizer.lr"], len(m.runs)) for m in section.found.methods] == [
        ("none", "0.02", 3),
        ("clip", "0.05", 3),
    ]
    (comparison,) = section.comparisons
    assert comparison.flags == [] and comparison.verdicts["accuracy"].words == "inconclusive"
    assert "clip: optimizer.lr=0.05 by validation accuracy" in section.notes[1]
    assert "It is the edge of what was tried" in section.notes[1] and "edge" not in section.notes[0]


def test_fewer_than_three_seeds_of_a_trial_choose_and_get_no_verdict(planted: Planted) -> None:
    grid(planted, seeds=2)
    grid(planted, seeds=2, accel="clip")
    for seed in (2, 3, 4):
        for method in ("none", "clip"):
            planted.run(0.9 + seed / 1000, seed, optimizer__lr="0.02", metric_val__accuracy=0.95, accel=method)
    (comparison,) = planted.section("optimizer.lr").comparisons
    assert comparison.pair.method.settings["optimizer.lr"] == "0.02" and len(comparison.pair.method.runs) == 5
    assert comparison.verdicts["accuracy"].verdict is Verdict.UNTUNED
    assert comparison.estimates["final_accuracy"].low is None
    assert json.loads(export.as_json(planted.report("optimizer.lr")))


def test_over_workloads_too_few_seeds_of_a_trial_give_no_interval(planted: Planted) -> None:
    for workload in ({}, {"model__name": "resnet20", "data__name": "cifar10", "digest": "d2"}):
        for accel in ("none", "clip"):
            for rate, seeds in (("0.02", 5), ("0.05", 2)):
                better = 0.95 if rate == "0.02" else 0.9
                for seed in range(seeds):
                    at = {"optimizer__lr": rate, "metric_val__accuracy": better, "accel": accel}
                    planted.run(0.9 + seed / 1000, seed, **at, **workload)
    (found,) = planted.report("optimizer.lr").workloads
    assert found.improvement == 0.5 and found.improvement_interval is None


def test_a_method_that_finished_at_one_value_alone_had_a_choice_of_one(planted: Planted) -> None:
    grid(planted, seeds=3)
    for seed in range(3):
        planted.run(0.9 + seed / 1000, seed, optimizer__lr="0.01", accel="clip")
        for rate in ("0.02", "0.05"):
            planted.run(0.1, seed, "FAILED", optimizer__lr=rate, accel="clip", tag_diverged="true")
    (comparison,) = planted.section("optimizer.lr").comparisons
    assert comparison.verdicts["accuracy"].words == "inconclusive"


def test_a_failed_value_is_told_and_is_the_edge(planted: Planted) -> None:
    grid(planted, seeds=3)
    for seed in range(3):
        planted.run(0.1, seed, "FAILED", optimizer__lr="0.5", tag_diverged="true")
    grid(planted, "0.05", seeds=3, accel="clip")
    for seed in range(3):
        planted.run(0.1, seed, "FAILED", optimizer__lr="0.5", accel="clip", tag_diverged="true")
    note = planted.section("optimizer.lr").notes[1]
    assert "0.5 → fails" in note and "edge" not in note


def test_a_value_at_which_most_runs_diverge_is_never_chosen(planted: Planted) -> None:
    """Not even where the only run that trained is the best of all; a NaN is no accuracy that could win."""
    grid(planted, seeds=3)
    grid(planted, "0.01", seeds=1, accel="clip")
    for seed in (1, 2):
        planted.run(math.nan, seed, optimizer__lr="0.01", metric_val__accuracy=math.nan, accel="clip")
        for rate in ("0.02", "0.05"):
            planted.run(0.9 + seed / 1000, seed, optimizer__lr=rate, metric_val__accuracy=RATES[rate], accel="clip")
    section = planted.section("optimizer.lr")
    assert [method.settings["optimizer.lr"] for method in section.found.methods] == ["0.02", "0.02"]
    assert "0.01 → fails, 0.02 → 93.93%" in section.notes[1]


def test_as_many_but_other_values_are_refused(planted: Planted) -> None:
    grid(planted)
    for rate in ("0.02", "0.05", "0.1"):
        planted.run(0.9, optimizer__lr=rate, accel="clip")
    with pytest.raises(UserError, match=r"needs the same values .* none: 0\.01 0\.02 0\.05, clip: 0\.02 0\.05 0\.1;"):
        planted.report("optimizer.lr")


def test_unequal_trials_are_refused(planted: Planted) -> None:
    grid(planted)
    planted.run(0.5, optimizer__lr="0.02", accel="clip")
    with pytest.raises(UserError, match=r"none: 0\.01 0\.02 0\.05, clip: 0\.02; train those that are missing"):
        planted.report("optimizer.lr")


def test_a_key_that_one_side_lacks_is_refused(planted: Planted) -> None:
    planted.runs([0.9, 0.91, 0.92])
    for value in ("0.5", "1.0"):
        planted.runs([0.9, 0.91, 0.92], accel="clip", accel__clip__max_norm=value)
    with pytest.raises(
        UserError, match=r"--tune accel\.clip\.max_norm needs values of each .* none has no such setting"
    ):
        planted.report("accel.clip.max_norm")


@pytest.mark.parametrize("key", ["optimizer.lr", "train.epochs"])
def test_a_key_with_one_value_in_each_set_has_nothing_to_choose(planted: Planted, key: str) -> None:
    for epochs in ("3", "6"):
        planted.runs([0.9, 0.91, 0.92], train__epochs=epochs)
        planted.runs([0.9, 0.91, 0.92], accel="clip", train__epochs=epochs)
    with pytest.raises(UserError, match=rf"--tune={key} has nothing to choose"):
        planted.report(key)


def test_what_makes_a_baseline_cannot_be_tuned(planted: Planted) -> None:
    for mode in ("none", "dynamic"):
        planted.runs([0.9, 0.91, 0.92], precision="fp16", loss_scale__mode=mode)
    with pytest.raises(UserError, match=r"^--tune=loss_scale\.mode is no setting of these runs to tune"):
        planted.report("loss_scale.mode")


def test_a_trial_that_diverged_was_a_trial(planted: Planted) -> None:
    grid(planted)
    grid(planted, "0.01", accel="clip")
    planted.run(0.0, optimizer__lr="0.7", status="FAILED")  # crashed, so it says nothing about the rate
    planted.run(0.0, optimizer__lr="0.5", status="FAILED", tag_diverged="true")
    with pytest.raises(UserError, match=r"none: 0\.01 0\.02 0\.05 0\.5, clip"):
        planted.report("optimizer.lr")
    planted.run(0.0, optimizer__lr="0.5", status="FAILED", accel="clip", tag_diverged="true")
    assert len(planted.section("optimizer.lr").comparisons) == 1


def test_the_test_set_never_chooses(planted: Planted) -> None:
    for rate in RATES:
        planted.run(0.5, optimizer__lr=rate, metric_val__accuracy=None)
    with pytest.raises(UserError, match=r"has no val/accuracy, .* train with data\.val_fraction=0\.0833"):
        planted.report("optimizer.lr")
