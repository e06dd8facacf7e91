"""Curves for the plots: the only place where a comparison asks MLflow about single runs, and only about a few."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from mlflow import MlflowClient
from numpy.typing import NDArray

from msaccel.compare.method_runs import MethodRuns
from msaccel.compare.runs import Record
from msaccel.tracking.store import reading

LOSS, ACCURACY = "train/loss", "eval/accuracy"
UPDATES, SAMPLES, SECONDS = "updates", "samples", "seconds"
_SECONDS, _EPOCH = "time/train_s", "epoch"
MAX_SEEDS = 3
MAX_CALLS = 2400  # to MLflow for the curves of a report: about ten seconds
CALLS_A_RUN = 4

Points = NDArray[np.float64]
Series = tuple[Points, Points]  # steps and values


@dataclass(frozen=True, eq=False)
class Curve:
    """One metric of one run: its values, and where they stand on each axis."""

    values: Points
    at: dict[str, Points]


def seeds_drawn(methods: int) -> int:
    """How many seeds of each method have curves in a report on so many methods; 0 if they are too many to ask for."""
    return min(MAX_SEEDS, MAX_CALLS // (CALLS_A_RUN * max(1, methods)))


def curves(client: MlflowClient, methods: Sequence[MethodRuns], seeds: int) -> dict[MethodRuns, dict[str, list[Curve]]]:
    """Loss and accuracy of the first seeds of each method, by method and metric."""
    return {method: _of(client, method.runs[:seeds]) for method in methods}


def _of(client: MlflowClient, runs: Sequence[Record]) -> dict[str, list[Curve]]:
    found: dict[str, list[Curve]] = {LOSS: [], ACCURACY: []}
    for run in runs:
        seconds, epochs = (_history(client, run, key) for key in (_SECONDS, _EPOCH))
        for metric, drawn in found.items():
            steps, values = _history(client, run, metric)
            if len(steps):
                drawn.append(Curve(values, _axes(run, steps, seconds, epochs)))
    return found


def _axes(run: Record, steps: Points, seconds: Series, epochs: Series) -> dict[str, Points]:
    axes = {UPDATES: steps}
    if len(seconds[0]) and not run.simulated:
        axes[SECONDS] = np.interp(steps, *seconds)
    if len(epochs[0]) and epochs[1][-1] and run.samples:
        axes[SAMPLES] = np.interp(steps, *epochs) * run.samples / epochs[1][-1]
    return axes


def _history(client: MlflowClient, run: Record, key: str) -> Series:
    """Steps and values, each step once, as last logged."""
    if key not in run.metrics:
        return np.empty(0), np.empty(0)
    with reading(client, f"{key} of run {run.run_id}"):
        logged = sorted(client.get_metric_history(run.run_id, key), key=lambda metric: metric.timestamp)
        by_step = {metric.step: metric.value for metric in logged}
        steps = sorted(by_step)
        return np.array(steps, dtype=np.float64), np.array([by_step[step] for step in steps], dtype=np.float64)
