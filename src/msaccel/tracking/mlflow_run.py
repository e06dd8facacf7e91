"""One run in MLflow: names, tags and parameters at the start, metrics in batches, a true status at the end."""

from __future__ import annotations

import json
import logging
import math
import shlex
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import mlflow.entities as entities
from mlflow import MlflowClient

from msaccel.errors import TrackingError
from msaccel.tracking import stopping
from msaccel.tracking.heartbeat import Heartbeat
from msaccel.tracking.metric_queue import MOST_AT_ONCE, MetricQueue
from msaccel.tracking.read_back import Confirmed, Missing
from msaccel.tracking.retry import SECONDS, StoreRemovedError, call_with_retries, is_lost, reason
from msaccel.tracking.status import CHANGED, FAILED, FINISHED, KILLED, changed_settings

if TYPE_CHECKING:
    from msaccel.data.dataset import DatasetSplits

_log = logging.getLogger(__name__)

UPDATES = "updates"  # of the whole job
RESUMES, RESUMED_FROM = "resumes", "resumed_from"  # tags: how often, and from which updates
_SECONDS_BETWEEN_FLUSHES = 5.0
_SECONDS_AFTER_A_FAILURE = 2.0  # of the 25 s that a job has once it is told to end


@dataclass
class Run:
    """A run that buffers its metrics, since a call to MLflow takes as long as an update.

    As a context manager it ends the run with everything logged until then: FINISHED, KILLED when interrupted, FAILED on
    any other exception. Where MLflow does not answer, metrics are kept (`msaccel.tracking.metric_queue`), and every
    other call waits up to two minutes, then raises `TrackingError`. Once the job has failed, no call waits.

    Attributes:
        logged: name and update of the points that a resumed run has in MLflow already.
        minutes: how long metrics are kept while MLflow does not answer; then the job is asked to end.
        database: the store's file, if it is one.
        store: overrides that name the store in a command, if the job's own named it.
    """

    client: MlflowClient
    run_id: str
    logged: set[tuple[str, int]] = field(default_factory=set)
    minutes: float = 60.0
    database: Path | None = None
    store: Sequence[str] = ()
    _flushed: float = field(default_factory=time.monotonic)
    _failing: bool = False
    _ended: bool = False

    def __post_init__(self) -> None:
        self._heartbeat = Heartbeat(self.client, self.run_id)
        self._queue = MetricQueue(self._send, self.minutes)
        self._confirmed = Confirmed()

    def metrics(self, update: int, values: Mapping[str, float]) -> None:
        """Adds metrics of an update, by name. Values that are not finite are left out."""
        milliseconds = time.time_ns() // 1_000_000
        self._queue.add(
            [
                entities.Metric(name, float(value), milliseconds, update)
                for name, value in values.items()
                if math.isfinite(value) and (name, update) not in self.logged
            ]
        )
        if time.monotonic() - self._flushed > _SECONDS_BETWEEN_FLUSHES or len(self._queue) >= MOST_AT_ONCE:
            self.flush()
        if why := self._queue.reason_to_stop():
            stopping.end_with(TrackingError(f"{why}; {self._how_to_go_on()}"))

    def flush(self) -> None:
        """Sends the metrics, as far as MLflow answers."""
        self._queue.flush()
        self._flushed = time.monotonic()

    def _send(self, points: Sequence[entities.Metric]) -> None:
        self._try(lambda: self.client.log_batch(self.run_id, metrics=points))
        self._confirmed.add(points)

    def _try(self, call: Callable[[], Any]) -> Any:
        try:
            return call()
        except Exception as error:
            if self.database and not self.database.exists():
                raise StoreRemovedError(f"{self.database} was removed") from error
            raise

    def _how_to_go_on(self, error: Exception | None = None) -> str:
        failure = self._queue.failure
        if (error and is_lost(error)) or (failure and failure.lost):
            return f"run {self.run_id} is not in the store any more, so start a new job."
        command = shlex.join(["python", "run.py", *self.store, f"resume={self.run_id}"])
        return f"once that is fixed, {command} continues it."

    def unflushed(self) -> list[tuple[str, float, int, int]]:
        """The metrics that are not in MLflow yet: name, value, milliseconds since 1970, update."""
        return [(metric.key, metric.value, metric.timestamp, metric.step) for metric in self._queue.unsent()]

    def log_again(self, unflushed: list[tuple[str, float, int, int]]) -> None:
        """Adds what `unflushed` returned, without the points that have reached MLflow since.

        Raises:
            TypeError, ValueError: it is something else.
        """
        for name, value, milliseconds, update in unflushed:
            if (name, update) not in self.logged:
                self._queue.add([entities.Metric(str(name), float(value), int(milliseconds), int(update))])
                self.logged.add((str(name), int(update)))  # a job resumed from its last checkpoint may log them again

    def tag(self, /, **tags: str) -> None:
        run_tags = [entities.RunTag(key, value) for key, value in tags.items()]
        self._call("the tags", lambda: self.client.log_batch(self.run_id, tags=run_tags))
        self._confirmed.tags |= tags

    def parameters(self, params: list[entities.Param]) -> None:
        """Logs parameters, at most the hundred that MLflow takes in one call; logging them again is no error."""
        self._call("the parameters", lambda: self.client.log_batch(self.run_id, params=params))
        self._confirmed.params |= {param.key: param.value for param in params}

    def resumed(self, update: int, changed: dict[str, str]) -> None:
        """Records the update that the run resumes from and the changed settings, since its parameters cannot change."""
        tags = self._call("the run", lambda: self.client.get_run(self.run_id)).data.tags
        before = tags.get(RESUMED_FROM, "").split()
        self.tag(**{RESUMES: str(len(before) + 1), RESUMED_FROM: " ".join([*before, str(update)])})
        if changed:
            self.tag(**{CHANGED: json.dumps(changed_settings(tags) | changed)})

    def artifact(self, path: Path, folder: str | None = None) -> None:
        """Logs a file, or a folder with its files, below `folder` of the run's artifacts."""
        self._call(path.name, lambda: self.client.log_artifact(self.run_id, str(path), folder))

    def text(self, name: str, text: str) -> None:
        self._call(name, lambda: self.client.log_text(self.run_id, text, name))

    def dataset(self, data: DatasetSplits, source: str) -> None:
        """Logs the data set as an MLflow input; MLflow keeps 36 characters of a digest."""
        dataset = entities.Dataset(data.name, data.digest[:36], "local", source)
        tags = [entities.InputTag("mlflow.data.context", "training")]
        inputs = [entities.DatasetInput(dataset, tags)]
        self._call("the data set's name", lambda: self.client.log_inputs(self.run_id, inputs))

    def _call(self, what: str, call: Callable[[], Any]) -> Any:
        """What a call to MLflow returns.

        Raises:
            TrackingError: MLflow has refused it, or has not answered in time.
        """
        try:
            if self._failing and (failure := self._queue.failure):
                raise ConnectionError(failure.reason)  # known already: each call could wait for its own time-out
            return call_with_retries(lambda: self._try(call), what, self._seconds(0.0))
        except Exception as error:
            raise TrackingError(
                f"{what} could not be saved in MLflow ({reason(error)}); {self._how_to_go_on(error)}"
            ) from error

    def _seconds(self, after_a_failure: float) -> float:
        """How many seconds to wait for MLflow."""
        return after_a_failure if self._failing else min(SECONDS, 60 * self.minutes)

    def failing(self) -> None:
        """Notes that the job has failed or was told to end: from here on no call waits."""
        self._failing = True

    def end(self, status: str) -> None:
        """Ends the run once everything is logged, and if it has FINISHED, found again in the store.

        Raises:
            TrackingError: metrics or the status are not in MLflow; the run may then still look RUNNING there.
        """
        sent = self._queue.drain(self._seconds(_SECONDS_AFTER_A_FAILURE))
        if sent and status == FINISHED:
            sent = self._read_back()
        failure = self._queue.failure
        if sent or (self._failing and failure is None):
            self._call("the end of the run", lambda: self._terminate(status))
            self._ended = True
        if not sent:
            why = f"{len(self._queue):,} points, {failure.reason if failure else 'no answer'}"
            raise TrackingError(f"metrics could not be saved in MLflow ({why}); {self._how_to_go_on()}")

    def _terminate(self, status: str) -> None:
        self.client.set_terminated(self.run_id, status)
        if self.client.get_run(self.run_id).info.status != status:
            raise ConnectionError("it was confirmed and is not in the store")

    def _read_back(self) -> bool:
        """Compares the store with what MLflow has confirmed, and sends again what the store lacks.

        Returns:
            Whether all could be sent.

        Raises:
            TrackingError: the store still lacks something. Missing points are queued to be sent again.
        """
        lacking = self._missing()
        if not lacking:
            return True
        _log.warning("MLflow lacks %s; that is sent again.", lacking)
        self._queue.add(lacking.points)
        if lacking.params or lacking.tags:
            again = lambda: self.client.log_batch(self.run_id, params=lacking.params, tags=lacking.tags)  # noqa: E731
            self._call("tags and parameters", again)
        if not self._queue.drain(self._seconds(_SECONDS_AFTER_A_FAILURE)):
            return False
        if lacking := self._missing():
            self._queue.add(lacking.points)
            raise TrackingError(
                f"MLflow lacks {lacking}, also after a second try (does a proxy answer in its place?); "
                f"{self._how_to_go_on()}"
            )
        return True

    def _missing(self) -> Missing:
        return self._call("the metrics", lambda: self._confirmed.missing(self.client, self.run_id))

    def __enter__(self) -> Run:
        self._heartbeat.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, *raised: object) -> None:
        self._heartbeat.stop()
        if self._ended:
            return
        if kind is None:
            self.end(FINISHED)
            return
        self.failing()
        try:
            self.end(KILLED if issubclass(kind, KeyboardInterrupt) else FAILED)
        except TrackingError as also:
            if not issubclass(kind, TrackingError):  # a TrackingError says it already
                _log.warning("%s", also)
