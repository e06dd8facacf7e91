"""Checks that need the size of the training set: the lengths of a schedule against those of the job."""

import re
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from msaccel.config.checks import refusals, too_few_samples, without_effect
from msaccel.config.compose import from_overrides

STAGE_2_ALONE = ("accel=dimreduce", "train.epochs=2", "accel.dimreduce.from_run=" + 32 * "0")


@pytest.mark.parametrize(
    ("overrides", "end"),
    [
        (("train.epochs=6", "schedule=step", "schedule.milestones=[2,4]"), None),
        (("train.epochs=6", "schedule=step", "schedule.milestones=[2,6]"), "6"),
        (("accel=dimreduce", "train.epochs=6", "schedule=step", "schedule.milestones=[2,3]"), None),
        (("accel=dimreduce", "train.epochs=6", "schedule=step", "schedule.milestones=[2,4]"), "4"),
        (("accel=dimreduce", "train.epochs=6", "schedule.warmup=5"), "4"),
        ((*STAGE_2_ALONE, "schedule=linear", "schedule.warmup=5"), None),
    ],
)
def test_a_schedule_belongs_to_the_epochs_that_follow_it(
    composed: Callable, overrides: tuple[str, ...], end: str | None
) -> None:
    """With dimension reduction those of stage 1; a job of stage 2 alone has none, and a recipe's may stay as it is."""
    said = [*too_few_samples(composed("schedule.unit=epochs", *overrides), 60_000)]
    assert [text.partition(" (")[0].rpartition(" ")[2] for text in said] == ([end] if end else []), said


@settings(max_examples=6)
@given(updates=st.integers(800, 1900), warmup=st.floats(0, 0.4))
def test_the_decay_that_is_advised_is_accepted(updates: int, warmup: float) -> None:
    typed = [
        "schedule=trapezoid",
        "schedule.unit=epochs",
        f"schedule.warmup={warmup}",
        f"train.max_updates={updates}",
    ]
    (said,) = too_few_samples(from_overrides([*typed, "schedule.decay=2"]), 60_000)
    advised = re.search(r"write ([0-9.]+) or less", said)
    assert advised
    config = from_overrides([*typed, f"schedule.decay={advised[1]}"])
    assert [*too_few_samples(config, 60_000), *refusals(config), *without_effect(config, typed)] == []
