"""The best rate of each method is chosen on the validation split, with as many trials on every side, or not at all."""

from __future__ import annotations

import pytest

from msaccel.errors import UserError

from .conftest import Planted

RATES = {"0.01": 0.90, "0.02": 0.94, "0.05": 0.92}


def grid(planted: Planted, best: str = "0.02", **given: object) -> None:
    for rate, validation in RATES.items():
        top = 0.95 if rate == best else validation
        planted.run(0.5, optimizer__lr=rate, metric_val__accuracy=top, **given)


def test_each_side_at_its_own_best_rate(planted: Planted) -> None:
    grid(planted)
    grid(planted, "0.05", accel="clip")
    for seed in (1, 2):
        planted.run(0.90 + seed / 100, seed, optimizer__lr="0.02")
        planted.run(0.96 + seed / 100, seed, optimizer__lr="0.05", accel="clip")
    section = planted.section("optimizer.lr")
    assert [(m.accel, m.settings["optimizer.lr"], len(m.runs)) for m in section.found.methods] == [
        ("none", "0.02", 3),
        ("clip", "0.05", 3),
    ]
    (comparison,) = section.comparisons
    assert comparison.flags == []
    assert "clip: optimizer.lr=0.05 by validation accuracy" in section.notes[1]
    assert "It is the edge of what was tried" in section.notes[1] and "edge" not in section.notes[0]


def test_seeds_that_not_every_trial_has_do_not_choose(planted: Planted) -> None:
    grid(planted)
    grid(planted, accel="clip")
    planted.run(0.5, 1, optimizer__lr="0.01", metric_val__accuracy=0.9999)
    assert planted.section("optimizer.lr").found.methods[0].settings["optimizer.lr"] == "0.02"


def test_unequal_trials_are_refused(planted: Planted) -> None:
    grid(planted)
    planted.run(0.5, optimizer__lr="0.02", accel="clip")
    with pytest.raises(UserError, match=r"none: 0\.01 0\.02 0\.05, clip: 0\.02; train those that are missing"):
        planted.report("optimizer.lr")


def test_a_trial_that_diverged_was_a_trial(planted: Planted) -> None:
    grid(planted)
    grid(planted, "0.01", accel="clip")
    planted.run(0.0, optimizer__lr="0.5", status="FAILED")
    with pytest.raises(UserError, match=r"none: 0\.01 0\.02 0\.05 0\.5, clip"):
        planted.report("optimizer.lr")
    planted.run(0.0, optimizer__lr="0.5", status="FAILED", accel="clip")
    assert len(planted.section("optimizer.lr").comparisons) == 1


def test_the_test_set_never_chooses(planted: Planted) -> None:
    for rate in RATES:
        planted.run(0.5, optimizer__lr=rate, metric_val__accuracy=None)
    with pytest.raises(UserError, match=r"has no val/accuracy, .* train with data\.val_fraction=0\.0833"):
        planted.report("optimizer.lr")


def test_trials_without_a_common_seed_are_refused(planted: Planted) -> None:
    for seed, rate in enumerate(RATES):
        planted.run(0.5, seed, optimizer__lr=rate)
    with pytest.raises(UserError, match="no seed in common; train every value with seed=0"):
        planted.report("optimizer.lr")
