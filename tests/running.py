"""Real runs of `run.py` in processes of their own, and what MLflow's client then reads."""

import os
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest
from _pytest.mark import ParameterSet
from mlflow import MlflowClient
from mlflow.entities import Run

from msaccel.tracking.status import KIND
from msaccel.tracking.store import open_store
from tests import forking

ROOT = Path(__file__).parents[1]
# A job of seconds: 11 updates an epoch, the last one short.
SMALL = ("data=synthetic", "data.train_size=340", "data.test_size=70", "train.epochs=2", "tracking.every=3")
SMALL_DIFFERS = "epochs=2 train_size=340 test_size=70"  # as the names of its runs say
TIMES = ("time/", "throughput/", "memory/", "machine/")


def ranks(launcher: int) -> dict[str, psutil.Process]:
    """The forked ranks of a launcher's cluster, by their numbers."""
    rank, found = "msaccel rank ", {}
    for process in psutil.Process(launcher).children(recursive=True):
        with suppress(psutil.NoSuchProcess):
            if process.name().startswith(rank):
                found[process.name().removeprefix(rank)] = process
    return found


def wait_until(condition: Callable[[], object], seconds: float = 300) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.2)


def soak(*values: object) -> list[ParameterSet]:
    """Parameters of a test that only `make soak` runs."""
    return [pytest.param(value, marks=pytest.mark.soak) for value in values]


def python(*arguments: str, folder: Path = ROOT, **environment: str) -> subprocess.CompletedProcess[str]:
    """Runs Python with these arguments, such as `-m msaccel compare`, in a fork that has nothing to import."""
    return forking.run(arguments, folder, {**os.environ, **environment}, 500)


@dataclass(frozen=True)
class Store:
    """A store of its own for a test, whose jobs end within so many seconds."""

    folder: Path
    timeout: float = 900  # seconds; only what hangs should reach it

    @property
    def uri(self) -> str:
        return f"sqlite:///{self.folder}/mlflow.db"

    @property
    def client(self) -> MlflowClient:
        return open_store(self.uri)

    def command(self, *overrides: str) -> list[str]:
        """The command line of a job or sweep in this store; the overrides come last, so they win."""
        jobs = [f"hydra.{kind}.dir={self.folder}/jobs/${{now:%H-%M-%S-%f}}" for kind in ("run", "sweep")]
        tracking = [f"tracking.uri={self.uri}", f"tracking.artifacts={self.folder}/artifacts"]
        return [sys.executable, str(ROOT / "run.py"), *tracking, *jobs, *overrides]

    def run(self, *overrides: str, **environment: str) -> subprocess.CompletedProcess[str]:
        """Runs `run.py` to its end, from another folder than the repository; a report has room for its tables.

        It is a fork that has nothing to import, but where libraries read another environment as they are imported, and
        where Hydra's launcher starts processes that end with its own.
        """
        imported = any(name.startswith(("PYTHONPATH", "OMP_", "OPENBLAS_")) for name in environment)
        if imported or any(override.startswith("hydra/launcher=") for override in overrides):
            return self.run_alone(*overrides, **environment)
        given = {**os.environ, "COLUMNS": "200", **environment}
        return forking.run(self.command(*overrides)[1:], self.folder, given, self.timeout)

    def start(self, *overrides: str) -> forking.Background:
        """Starts what `run` runs, for tests that interrupt, kill or disturb it."""
        return forking.start(self.command(*overrides)[1:], self.folder, os.environ)

    def run_alone(self, *overrides: str, **environment: str) -> subprocess.CompletedProcess[str]:
        """Runs `run.py` as a user does, in processes that share nothing with other runs."""
        return subprocess.run(
            self.command(*overrides),
            capture_output=True,
            text=True,
            timeout=self.timeout,
            cwd=self.folder,
            env={**os.environ, "COLUMNS": "200", **environment},
        )

    def runs(self) -> list[Run]:
        """All training runs of the store, the oldest first; without those of sweeps."""
        if not (self.folder / "mlflow.db").exists():
            return []
        ids = [experiment.experiment_id for experiment in self.client.search_experiments()]
        runs = self.client.search_runs(ids, order_by=["attributes.start_time"])
        return [run for run in runs if KIND not in run.data.tags]

    def history(self, run: Run, times: bool = False) -> dict[str, list[tuple[int, float]]]:
        """Every metric's points (step, value); without the times, which differ from run to run."""
        return {
            name: [(point.step, point.value) for point in self.client.get_metric_history(run.info.run_id, name)]
            for name in sorted(run.data.metrics)
            if times or not name.startswith(TIMES)
        }

    def artifacts(self, run: Run, folder: str | None = None) -> set[str]:
        return {file.path for file in self.client.list_artifacts(run.info.run_id, folder) if not file.is_dir}
