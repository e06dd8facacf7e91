"""Whatever is typed after `run.py` gives checked settings or one sentence for each fault; no other error, no hang."""

from __future__ import annotations

import os
from unittest import mock

import pytest
from hydra import initialize_config_dir
from hydra.core.global_hydra import GlobalHydra
from hydra.types import RunMode
from hypothesis import given, settings

from msaccel.config import compose
from msaccel.config.checks import refusals, without_effect
from msaccel.config.overrides import problems
from msaccel.errors import UserError
from msaccel.files import CONF
from msaccel.sweeps import checked_jobs, presets, search, submitit

from .overrides import command_lines

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


def faults(several: bool, typed: list[str]) -> list[str]:
    """The sentences about a command line, made as `run.py` makes them; none if its jobs would start."""
    compose.register()
    presets.register()
    overrides = compose.readable(typed)
    if wrong := problems(overrides):
        return wrong
    try:
        if not several:
            config = compose.from_overrides(overrides)
            return [*refusals(config), *without_effect(config, overrides)]
        with initialize_config_dir(str(CONF), version_base="1.3"):
            loader = GlobalHydra.instance().config_loader()
            with compose.composing():
                composed = loader.load_configuration("config", overrides, RunMode.MULTIRUN)
            jobs, reasons = checked_jobs.checked_jobs(composed)
            reasons += [*search.refusals(composed), *submitit.refusals(composed)]
            return reasons or [said for config in jobs for said in refusals(config)]
    except UserError as error:
        return str(error).splitlines()
