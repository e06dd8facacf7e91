"""Whatever is typed after `run.py` gives checked settings or one sentence for each fault; no other error, no hang."""

from __future__ import annotations

import os
from unittest import mock

import pytest
from hypothesis import given, settings

from msaccel.sweeps import checked_jobs

from .overrides import command_lines, faults

EXAMPLES = int(os.environ.get("MSACCEL_FUZZ_EXAMPLES", "60"))


@pytest.fixture(autouse=True)
def few_jobs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checked_jobs, "MAX_JOBS", 8)  # each of a sweep's jobs is composed


@pytest.mark.slow
@pytest.mark.timeout(0 if EXAMPLES > 1000 else 600)
@settings(max_examples=EXAMPLES, derandomize=True, database=None)
@given(command_lines)
def test_any_command_line(typed: tuple[bool, list[str]]) -> None:
    several, overrides = typed
    with mock.patch.dict(os.environ):  # a password in an address goes there
        for said in faults(several, overrides):
            assert said.isprintable() and 10 <= len(said) <= 700 and said.endswith("."), said
            assert "Hydra cannot compose" not in said, said
