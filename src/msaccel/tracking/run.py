"""One run in MLflow: names, tags and parameters at the start, metrics in batches, a true status at the end."""

from __future__ import annotations

import json
import math
import socket
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType

import mlflow.entities as entities
from mlflow import MlflowClient

from msaccel.data import Data
from msaccel.jobfolder import FAILED, FINISHED, KILLED
from msaccel.settings import Config, leaves
from msaccel.tracking.heart import HEARTBEAT, Heart, now
from msaccel.tracking.links import is_server
from msaccel.tracking.provenance import git_commit
from msaccel.tracking.store import experiment_id, open_store

JOB_FOLDER = "job_folder"  # HOST:PATH
UPDATES = "updates"  # of the whole job
RESUMES, RESUMED_FROM = "resumes", "resumed_from"  # how often, and from which updates
CHANGED = "changed"  # JSON: settings that are no longer those of the parameters
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
    logged: set[tuple[str, int]] = field(default_factory=set)  # name and update of what a resumed run has already
    _metrics: list[entities.Metric] = field(default_factory=list)
    _flushed: float = field(default_factory=time.monotonic)

    def __post_init__(self) -> None:
        self._heart = Heart(self.client, self.run_id)

    def metrics(self, update: int, values: Mapping[str, float]) -> None:
        """Notes metrics at an update, by name. Values that are not finite are left out."""
        milliseconds = time.time_ns() // 1_000_000
        for name, value in values.items():
            if math.isfinite(value) and (name, update) not in self.logged:
                self._metrics.append(entities.Metric(name, float(value), milliseconds, update))
        if time.monotonic() - self._flushed > _SECONDS_BETWEEN_FLUSHES or len(self._metrics) >= _MOST_METRICS:
            self.flush()

    def flush(self) -> None:
        for first in range(0, len(self._metrics), _MOST_METRICS):
            self.client.log_batch(self.run_id, metrics=self._metrics[first : first + _MOST_METRICS])
        self._metrics.clear()
        self._flushed = time.monotonic()

    def unflushed(self) -> list[tuple[str, float, int, int]]:
        """The metrics that are not in MLflow yet: name, value, milliseconds since 1970, update."""
        return [(metric.key, metric.value, metric.timestamp, metric.step) for metric in self._metrics]

    def log_again(self, unflushed: list[tuple[str, float, int, int]]) -> None:
        """Notes what `unflushed` returned, but for what has come into MLflow since.

        Raises:
            TypeError, ValueError: it is something else.
        """
        for name, value, milliseconds, update in unflushed:
            if (name, update) not in self.logged:
                self._metrics.append(entities.Metric(str(name), float(value), int(milliseconds), int(update)))

    def tag(self, **tags: str) -> None:
        self.client.log_batch(self.run_id, tags=[entities.RunTag(key, value) for key, value in tags.items()])

    def resumed(self, update: int, changed: dict[str, str]) -> None:
        """Notes that the run goes on from an update, and with which settings, since its parameters stay as they are."""
        tags = self.client.get_run(self.run_id).data.tags
        before = tags.get(RESUMED_FROM, "").split()
        self.tag(**{RESUMES: str(len(before) + 1), RESUMED_FROM: " ".join([*before, str(update)])})
        if changed:
            self.tag(**{CHANGED: json.dumps(json.loads(tags.get(CHANGED, "{}")) | changed)})

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
        self._heart.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._heart.stop()
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
    def unflushed(self) -> list[tuple[str, float, int, int]]:
        return []

    def log_again(self, unflushed: list[tuple[str, float, int, int]]) -> None: ...
    def tag(self, **tags: str) -> None: ...
    def resumed(self, update: int, changed: dict[str, str]) -> None: ...
    def artifact(self, path: Path, folder: str | None = None) -> None: ...
    def text(self, name: str, text: str) -> None: ...
    def dataset(self, data: Data, source: str) -> None: ...
    def __enter__(self) -> Run:
        return self

    def __exit__(self, *ended: object) -> None: ...


def start(config: Config, label: str, name: str, sweep_id: str, folder: Path, resume: str = "") -> Run:
    """Creates the run of a job with its tags and parameters, or opens the one that is resumed.

    Args:
        label: the accelerators in slot order, `accum+clip` or `none`.
        name: the run's name, `<accel>-<device>-s<seed>`.
        sweep_id: shared by the runs of a sweep; empty for a single run.
        folder: of the job.
        resume: id of the run that goes on; empty for a new one.
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
        JOB_FOLDER: f"{socket.gethostname()}:{folder}",
        HEARTBEAT: now(),
        "mlflow.source.name": "run.py",
        "mlflow.source.type": "LOCAL",
        **({"sweep_id": sweep_id} if sweep_id else {}),
    }
    if resume:
        run, known = reopen(client, resume)
        run.tag(**{JOB_FOLDER: tags[JOB_FOLDER], HEARTBEAT: tags[HEARTBEAT]})
    else:
        run, known = Run(client, client.create_run(experiment, run_name=name, tags=tags).info.run_id), {}
    wanted = {"accel": label, **parameters(config)}
    params = [entities.Param(key, value) for key, value in wanted.items() if key not in known]
    for first in range(0, len(params), _MOST_PARAMS):
        client.log_batch(run.run_id, params=params[first : first + _MOST_PARAMS])
    return run


def reopen(client: MlflowClient, run_id: str) -> tuple[Run, dict[str, str]]:
    """A run that goes on, knowing what it has logged; and its parameters, which MLflow does not let change."""
    client.update_run(run_id, status="RUNNING")
    data = client.get_run(run_id).data
    logged = {(name, point.step) for name in data.metrics for point in client.get_metric_history(run_id, name)}
    return Run(client, run_id, logged), data.params


def parameters(config: Config) -> dict[str, str]:
    """The resolved configuration with dotted keys."""
    return {key: "null" if value is None else str(value) for key, value, _ in leaves(config)}
