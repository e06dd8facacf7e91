"""One run in MLflow: names, tags and parameters at the start, metrics in batches, a true status at the end."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any

import mlflow.entities as entities
from mlflow import MlflowClient

from msaccel.data import Data
from msaccel.jobfolder import FAILED, FINISHED, KILLED
from msaccel.settings import Config, leaves
from msaccel.tracking.links import is_server
from msaccel.tracking.provenance import git_commit
from msaccel.tracking.store import experiment_id, open_store, without_password

_MOST_METRICS = 1000  # that MLflow takes in one call
_MOST_PARAMS = 100
_SECONDS_BETWEEN_FLUSHES = 5.0


@dataclass
class Run:
    """A run that buffers its metrics: a call to MLflow costs milliseconds, as much as an update.

    As a context manager it ends the run: FINISHED, KILLED when interrupted, FAILED on any other exception, each with
    everything logged until then.
    """

    client: MlflowClient
    run_id: str
    _metrics: list[entities.Metric] = field(default_factory=list)
    _flushed: float = field(default_factory=time.monotonic)

    def metrics(self, update: int, values: Mapping[str, float]) -> None:
        """Notes metrics at an update, by name. Values that are not finite are left out."""
        now = time.time_ns() // 1_000_000
        for name, value in values.items():
            if math.isfinite(value):
                self._metrics.append(entities.Metric(name, float(value), now, update))
        if time.monotonic() - self._flushed > _SECONDS_BETWEEN_FLUSHES or len(self._metrics) >= _MOST_METRICS:
            self.flush()

    def flush(self) -> None:
        for first in range(0, len(self._metrics), _MOST_METRICS):
            self.client.log_batch(self.run_id, metrics=self._metrics[first : first + _MOST_METRICS])
        self._metrics.clear()
        self._flushed = time.monotonic()

    def tag(self, **tags: str) -> None:
        self.client.log_batch(self.run_id, tags=[entities.RunTag(key, value) for key, value in tags.items()])

    def artifact(self, path: Path, folder: str | None = None) -> None:
        """A file, or a folder with its files, below `folder` of the run's artifacts."""
        self.client.log_artifact(self.run_id, str(path), folder)

    def text(self, name: str, text: str) -> None:
        self.client.log_text(self.run_id, text, name)

    def dataset(self, data: Data, source: str) -> None:
        """The data set as an MLflow input; MLflow keeps 36 characters of a digest."""
        dataset = entities.Dataset(data.name, data.digest[:36], "local", source)
        tags = [entities.InputTag("mlflow.data.context", "training")]
        self.client.log_inputs(self.run_id, [entities.DatasetInput(dataset, tags)])

    def __enter__(self) -> Run:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        status = FINISHED if kind is None else KILLED if issubclass(kind, KeyboardInterrupt) else FAILED
        try:
            self.flush()
        finally:
            self.client.set_terminated(self.run_id, status)


class Silent(Run):
    """What a rank has that is not the first: it logs nothing."""

    def __init__(self) -> None:
        self.run_id = ""

    def metrics(self, update: int, values: Mapping[str, float]) -> None: ...
    def flush(self) -> None: ...
    def tag(self, **tags: str) -> None: ...
    def artifact(self, path: Path, folder: str | None = None) -> None: ...
    def text(self, name: str, text: str) -> None: ...
    def dataset(self, data: Data, source: str) -> None: ...
    def __exit__(self, *ended: object) -> None: ...


def start(config: Config, label: str, name: str, sweep_id: str) -> Run:
    """Creates the run of a job with its tags and parameters.

    Args:
        label: the accelerators in slot order, `accum+clip` or `none`.
        name: the run's name, `<accel>-<device>-s<seed>`.
        sweep_id: shared by the runs of a sweep; empty for a single run.
    """
    tracking = config.tracking
    client = open_store(tracking.uri)
    own_folder = not is_server(tracking.uri)
    experiment = experiment_id(client, tracking.experiment, tracking.artifacts if own_folder else None)
    commit = git_commit()
    tags = {
        "accel": label,
        "model": config.model.name,
        "data": config.data.name,
        "device": config.device.name,
        "simulated": str(config.device.simulated).lower(),
        "seed": str(config.seed),
        "git_commit": commit,
        "mlflow.source.name": "run.py",
        "mlflow.source.type": "LOCAL",
        **({"sweep_id": sweep_id} if sweep_id else {}),
    }
    run = Run(client, client.create_run(experiment, run_name=name, tags=tags).info.run_id)
    params = [entities.Param(key, value) for key, value in {"accel": label, **parameters(config)}.items()]
    for first in range(0, len(params), _MOST_PARAMS):
        client.log_batch(run.run_id, params=params[first : first + _MOST_PARAMS])
    return run


def parameters(config: Config) -> dict[str, str]:
    """The resolved configuration with dotted keys, without passwords."""
    return {key: _text(key, value) for key, value, _ in leaves(config)}


def _text(key: str, value: Any) -> str:
    if value is None:
        return "null"
    return without_password(value) if key == "tracking.uri" else str(value)
