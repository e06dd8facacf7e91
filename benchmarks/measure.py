"""Measured processes: how one is run, what it trains on, and how it measures its time."""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from msaccel import schema
from msaccel.config.derived import transform
from msaccel.data.dataset import DatasetSplits
from msaccel.data.load import load_datasets


def run_script(command: list[str], environment: dict[str, str]) -> Any:
    """Runs a script of this folder with its arguments; its result. Raises as `output_of` does."""
    return result_in(output_of(command, environment))


def output_of(command: list[str], environment: dict[str, str]) -> str:
    """Runs a script of this folder with its arguments; all that it prints.

    Raises:
        subprocess.CalledProcessError: it failed; its messages are on the standard error output.
    """
    script, *arguments = command
    program = [sys.executable, str(Path(__file__).with_name(script)), *arguments]
    return subprocess.run(program, env=environment, stdout=subprocess.PIPE, check=True, text=True).stdout


def result_in(printed: str) -> Any:
    """A script's result: what it has printed last, as JSON."""
    return json.loads(printed.splitlines()[-1])


def milliseconds(step: Callable[[], Any], count: int, settle: Callable[[Any], Any]) -> float:
    """Milliseconds per call of `step` in a loop that ends when `settle` has waited for the last result."""
    for _ in range(max(1, count // 10)):
        settle(step())
    started = time.perf_counter()
    for _ in range(count - 1):
        step()
    settle(step())
    return (time.perf_counter() - started) / count * 1e3


def spread(values: Sequence[float], form: str) -> str:
    """Median (least to most), each in this format."""
    return f"{statistics.median(values):{form}} ({min(values):{form}} to {max(values):{form}})"


def load_samples(config: schema.Config) -> DatasetSplits:
    """A job's data for another framework; sets `model.classes` to its number of classes if null."""
    data = replace(config.data, transform=transform(config.model, config.data))
    loaded = load_datasets(data, config.seed, config.model.input_shape())
    config.model.classes = config.model.classes or loaded.classes
    return loaded
