"""What a job has counted survives JSON, and anything else is refused with a sentence."""

import json
from copy import deepcopy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from msaccel.errors import CheckpointError
from msaccel.training.progress import Clock, Counts

WHOLE = st.integers(0, 10**9)
NUMBER = st.floats(allow_nan=False)
COUNTS = st.builds(
    Counts, WHOLE, WHOLE, WHOLE, WHOLE, WHOLE, WHOLE, NUMBER, NUMBER, NUMBER, st.booleans(),
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
    with pytest.raises(CheckpointError, match=r"^the resume checkpoint is not understood .*; start anew\.$"):
        Counts.of(facts, 10)


def test_more_updates_than_the_job_has_are_refused() -> None:
    with pytest.raises(CheckpointError, match=r"^the job ends after 10 updates and has made 11; raise train\.epochs"):
        Counts.of(Counts(updates=11).state_dict(), 10)
