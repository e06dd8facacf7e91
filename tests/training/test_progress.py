"""What a job has counted survives JSON, and anything else is refused with a sentence."""

import json
from copy import deepcopy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from msaccel.config.compose import from_overrides
from msaccel.errors import CheckpointError
from msaccel.training import progress
from msaccel.training.plan import Plan
from msaccel.training.progress import Clock, Counts, TimeLeft

WHOLE = st.integers(0, 10**9)
NUMBER = st.floats(allow_nan=False)
COUNTS = st.builds(
    Counts, WHOLE, WHOLE, WHOLE, WHOLE, WHOLE, WHOLE, NUMBER, NUMBER, NUMBER, NUMBER, st.booleans(),
    NUMBER,
    *[st.floats(0, 1e6).map(Clock)] * 3,
)  # fmt: skip


def known(counts: Counts) -> dict[str, Any]:
    return {name: value.seconds if isinstance(value, Clock) else value for name, value in vars(counts).items()}


@given(COUNTS)
def test_counts_survive_a_checkpoint(counts: Counts) -> None:
    assert known(Counts.of(json.loads(json.dumps(counts.state_dict())), counts.updates)) == known(counts)


def test_a_new_job_s_counts_survive_too() -> None:
    found = Counts.of(json.loads(json.dumps(Counts().state_dict())), 0)
    assert repr(known(found)) == repr(known(Counts())), "NaN is not equal to itself"


def spoilt(*path: str, value: Any = None) -> dict[str, Any]:
    """The facts of a new job, with something else at a place, or nothing."""
    facts = deepcopy(Counts().state_dict())
    place: dict[str, Any] = facts
    for name in path[:-1]:
        place = place[name]
    del place[path[-1]]
    if value is not None:
        place[path[-1]] = value
    return facts


@pytest.mark.parametrize(
    "facts",
    [
        {}, spoilt("counters"), spoilt("seconds", value=3), spoilt("counters", "updates"), spoilt("seconds", "clock"),
        spoilt("counters", "samples", value="many"), spoilt("counters", "epoch", value=[1]),
        spoilt("counters", "updates", value=float("inf")),
    ],
)  # fmt: skip
def test_what_is_not_understood_is_refused(facts: dict[str, Any]) -> None:
    with pytest.raises(CheckpointError, match=r"^the resume checkpoint is not understood .*; start a new job\.$"):
        Counts.of(facts, 10)


def test_more_updates_than_the_job_has_are_refused() -> None:
    with pytest.raises(CheckpointError, match=r"^the job ends after 10 updates and has made 11; raise train\.epochs"):
        Counts.of(Counts(updates=11).state_dict(), 10)


JOB = ("data=synthetic", "model=mlp", "train.epochs=10", "train.batch_size=10")
PLAN = Plan(from_overrides(JOB), 1000)
WITH_STAGES = ("accel=dimreduce", "accel.dimreduce.epochs=2", "schedule=cosine")


def at(samples: int, seconds: float, epoch: int = 0) -> Counts:
    return Counts(epoch=epoch, samples=samples, clock=Clock(seconds), compiling=Clock(1000.0))


@given(st.integers(1, 10_000), st.floats(1e-6, 1.0))
def test_the_time_left_is_that_of_the_samples_left(samples: int, pace: float) -> None:
    left = TimeLeft(PLAN)
    assert left.seconds(Counts()) is None
    assert left.seconds(at(samples, samples * pace)) == pytest.approx((10_000 - samples) * pace)


def test_a_resumed_job_and_a_later_stage_go_by_their_own_pace() -> None:
    left = TimeLeft(Plan(from_overrides([*JOB, *WITH_STAGES]), 1000))
    left.begin_stage(at(8000, 80.0, epoch=8))
    assert left.seconds(at(8000, 80.0, epoch=8)) is None
    assert left.seconds(at(8500, 130.0, epoch=8)) == pytest.approx(150.0), "0.1 s a sample, no more 0.01"


@pytest.mark.parametrize(
    ("every", "epoch", "evaluations"),
    [(1, 0.5, 11), (1, 9.5, 2), (3, 0.5, 5), (3, 3.5, 4), (20, 5.5, 2), (0.5, 9.4, 3), (0.5, 9.6, 2)],
)
def test_evaluations_to_come_take_as_long_as_the_shortest(
    every: float, epoch: float, evaluations: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    left = TimeLeft(Plan(from_overrides([*JOB, f"train.eval_every={every}"]), 1000))
    times = iter([0.0, 9.0, 10.0, 12.0])
    monkeypatch.setattr(progress.time, "perf_counter", lambda: next(times))
    for _ in range(2):
        with left.evaluating():
            pass
    samples = int(1000 * epoch)
    assert left.seconds(at(samples, float(samples), int(epoch))) == pytest.approx(10_000 - samples + 2.0 * evaluations)
