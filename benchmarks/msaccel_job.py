"""One whole job of msaccel, with its tracking into a store of its own. Usage: msaccel_job.py CASE OVERRIDE..."""

from __future__ import annotations

import contextlib
import io
import json
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from cases import CASES
from flops import forward
from measure import milliseconds

from msaccel.config.compose import from_overrides, save
from msaccel.devices.machine import peak_mb
from msaccel.launch.job import Task
from msaccel.launch.job_folder import JobFolder
from msaccel.step.update import Update
from msaccel.tracking.mlflow_run import Run
from msaccel.training.evaluation import Score
from msaccel.training.job import run
from msaccel.training.loop import Training


class Watch:
    """Notes of a job, by its own clock, when its first update and its warm-up were done, and what MLflow took."""

    def __init__(self, warm_up: int) -> None:
        self.warm_up, self.tracking = warm_up, 0.0
        self.first_s = self.peak_mb = self.seconds_before = 0.0
        self.samples_before = 0

    def begin(self, training: Training) -> None:
        """Asks the job's only stage to say when updates are done."""
        (stage,) = training.stages
        self.training = training

        def after(updates: int) -> None:
            stage.after(updates)
            counts = training.counts
            if updates == 1:
                self.first_s = counts.clock.seconds + counts.compiling.seconds
            if updates == self.warm_up:
                self.seconds_before, self.samples_before = counts.clock.seconds, counts.samples

        training.stages = [replace(stage, after=after)]

    def timed(self, method: Callable[..., Any]) -> Callable[..., Any]:
        """A method of `Run`, its time added to tracking's."""

        def call(*given: Any) -> Any:
            started = time.perf_counter()
            try:
                return method(*given)
            finally:
                self.tracking += time.perf_counter() - started

        return call

    def result(self, bare: int) -> dict[str, float]:
        """What was measured; runs the job's update `bare` times on one batch, so after everything else."""
        training, counts, peak = self.training, self.training.counts, peak_mb()
        seconds = counts.clock.seconds
        config, update = training.plan.config, training.stages[0].update
        assert isinstance(update, Update)
        windows = [[training.data.train.batch(np.arange(config.train.batch_size))]]
        return {
            "samples_per_sec": (counts.samples - self.samples_before) / (seconds - self.seconds_before),
            "bare_ms": milliseconds(lambda: update(windows, 1e-4), bare, lambda signals: signals.outcome.asnumpy()),
            "first_s": self.first_s,
            "compile_s": counts.compiling.seconds,
            "peak_mb": peak,
            "tracking_share": self.tracking / seconds,
            "forward_flops": forward(config.model),
        }


def main(name: str, overrides: list[str]) -> dict[str, float]:
    """Trains the case's job as a worker of `run.py` does."""
    case = CASES[name]
    watch, train = Watch(case.warm_up), Training.train

    def watched(training: Training) -> Score:
        watch.begin(training)
        return train(training)

    Training.train = watched  # type: ignore[method-assign, assignment]
    Run.metrics = watch.timed(Run.metrics)  # type: ignore[method-assign]
    Run.__exit__ = watch.timed(Run.__exit__)  # type: ignore[method-assign]
    with tempfile.TemporaryDirectory() as folder, contextlib.redirect_stdout(io.StringIO()):
        store = [f"tracking.uri=sqlite:///{folder}/mlflow.db", f"tracking.artifacts={folder}/artifacts"]
        overrides = [*case.overrides, *overrides]
        config, job = from_overrides([*overrides, *store]), JobFolder(Path(folder))
        save(config, job.config)
        run(config, job, Task("benchmark", overrides, quiet=True))
        return watch.result(case.bare)


if __name__ == "__main__":
    print(json.dumps(main(sys.argv[1], sys.argv[2:])))
