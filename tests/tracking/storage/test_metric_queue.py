"""Metrics that MLflow does not take: kept, tried again, sent once and in order, and no longer than was said."""

import errno
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from mlflow.entities import Metric
from mlflow.exceptions import MlflowException
from mlflow.protos.databricks_pb2 import BAD_REQUEST, RESOURCE_DOES_NOT_EXIST, TEMPORARILY_UNAVAILABLE

from msaccel import schema
from msaccel.checkpoint import resume_file
from msaccel.distributed.communicator import SINGLE_PROCESS
from msaccel.errors import TrackingError, UserError
from msaccel.tracking import metric_queue as module
from msaccel.tracking import retry, stopping
from msaccel.tracking.metric_queue import MOST_AT_ONCE, MetricQueue
from msaccel.tracking.mlflow_run import Run
from msaccel.training.resume_checkpoints import ResumeCheckpoints

AWAY = MlflowException("API request to http://me:secret@h/api failed: [Errno 111] Connection refused')")
GONE = MlflowException("Run with id=7 not found", RESOURCE_DOES_NOT_EXIST)


class Store:
    """MLflow as far as it matters here: takes points, or raises what it is told to."""

    def __init__(self) -> None:
        self.taken: list[int] = []
        self.status = "RUNNING"
        self.lost: set[int] = set()  # updates whose points are confirmed and not stored
        self.history: dict[str, list[Metric]] = {}
        self.batches: list[int] = []
        self.error: Exception | None = None
        self.hold = threading.Event()
        self.hold.set()

    def send(self, points: Sequence[Metric]) -> None:
        self.hold.wait(20)
        if self.error:
            raise self.error
        self.batches.append(len(points))
        self.taken += [point.step for point in points]
        for point in points:
            if point.step not in self.lost:
                self.history.setdefault(point.key, []).append(point)

    def log_batch(
        self, run_id: str, metrics: Sequence[Metric] = (), tags: Sequence = (), params: Sequence = ()
    ) -> None:
        self.send(metrics)
        self.tags = {**getattr(self, "tags", {}), **{tag.key: tag.value for tag in tags}}

    def get_metric_history(self, run_id: str, name: str) -> list[Metric]:
        return self.history.get(name, [])

    def get_run(self, run_id: str) -> SimpleNamespace:
        data = SimpleNamespace(tags=getattr(self, "tags", {}), params={})
        return SimpleNamespace(info=SimpleNamespace(status=self.status), data=data)

    def set_terminated(self, run_id: str, status: str) -> None:
        self.send([])
        self.status = status


def points(first: int, end: int) -> list[Metric]:
    return [Metric("train/loss", 0.5, 0, step) for step in range(first, end)]


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retry, "SECONDS_BETWEEN_TRIES", 0.02)


def test_points_arrive_once_in_order_and_in_batches() -> None:
    store = Store()
    box = MetricQueue(store.send)
    box.add(points(0, 2500))
    box.flush()
    assert store.batches == [MOST_AT_ONCE, MOST_AT_ONCE, 500]
    assert store.taken == list(range(2500)) and not box.unsent()


def test_what_cannot_be_sent_is_kept_and_sent_later(capsys: pytest.CaptureFixture[str]) -> None:
    store = Store()
    box, store.error = MetricQueue(store.send), AWAY
    for first in range(0, 3000, 100):
        box.add(points(first, first + 100))
        box.flush()
    assert [point.step for point in box.unsent()] == list(range(3000)) and not store.taken
    assert box.failure and not box.reason_to_stop() and not box.drain(0.1)
    store.error = None
    assert box.drain(20)
    assert store.taken == list(range(3000)) and box.failure is None
    first, second = capsys.readouterr().err.splitlines()
    assert first == (
        "MLflow does not answer (Connection refused); training goes on, and keeps up to 100,000 metrics for 60 minutes."
    )
    assert second.startswith("MLflow answers again, after ")


def test_a_store_that_is_slow_holds_nobody_up_for_long(monkeypatch: pytest.MonkeyPatch) -> None:
    waited = []
    monkeypatch.setattr(module, "SECONDS_FOR_A_FLUSH", 0.05)
    store = Store()
    box = MetricQueue(store.send)
    real = box._changed.wait_for
    monkeypatch.setattr(box._changed, "wait_for", lambda *a: (waited.append(a[1:]), real(*a))[1])
    store.hold.clear()
    for first in range(3):
        box.add(points(first, first + 1))
        box.flush()
    assert len(box.unsent()) == 3, "what is under way counts as not sent"
    assert waited.count((0.05,)) == 1, "only the first time"
    store.hold.set()
    assert box.drain(20) and store.taken == [0, 1, 2]


def test_the_bounds() -> None:
    store = Store()
    box, store.error = MetricQueue(store.send, minutes=60), AWAY
    box.add(points(0, 1))
    box.flush()
    assert box.failure and not box.reason_to_stop()
    box.failure.since -= 3601
    assert box.reason_to_stop() == "MLflow has taken no metrics for 60 minutes (Connection refused)"
    box.failure.since += 3601
    box.add(points(1, module.MAX_KEPT + 1))
    assert box.reason_to_stop() == "MLflow takes no metrics (Connection refused), and more than 100,000 wait for it"


def test_what_waiting_does_not_mend_is_known_at_once() -> None:
    store = Store()
    box, store.error = MetricQueue(store.send), GONE
    box.add(points(0, 1))
    box.flush()
    assert not box.drain(20)
    assert box.reason_to_stop() == "MLflow does not take the metrics (Run with id=7 not found)"


LASTING = [
    (AWAY, False),
    (MlflowException("(sqlite3.OperationalError) database is locked", TEMPORARILY_UNAVAILABLE), False),
    (MlflowException("PendingRollbackError", BAD_REQUEST), False),
    (ConnectionError("Connection aborted."), False),
    (GONE, True),
    (OSError(errno.ENOSPC, "No space left on device", "/a"), True),
    (PermissionError(errno.EACCES, "Permission denied", "/a"), True),
    (UserError("tracking.experiment=a was deleted"), True),
]


@pytest.mark.parametrize(("error", "expected"), LASTING, ids=lambda value: str(value)[:40])
def test_which_errors_pass(error: Exception, expected: bool) -> None:
    assert retry.is_permanent(error) == expected


REASONS = [
    (AWAY, "Connection refused"),
    (MlflowException("(sqlite3.OperationalError) disk is full\n[SQL: INSERT"), "disk is full"),
    (MlflowException("HTTPConnectionPool(host='h', port=1): Read timed out. (read timeout=120)"), "Read timed out"),
    (MlflowException("(Caused by ResponseError('too many 503 error responses'))"), "too many 503 error responses"),
    (OSError(errno.ENOSPC, "No space left on device", "/a"), "/a: No space left on device"),
    (MlflowException("API request to http://me:secret@h:1/a failed\nand more"), "API request to http://h:1/a failed"),
    (MlflowException(""), "MlflowException"),
]


@pytest.mark.parametrize(("error", "expected"), REASONS, ids=lambda value: str(value)[:40])
def test_reasons_are_short_and_hold_no_password(error: Exception, expected: str) -> None:
    assert retry.reason(error) == expected


def test_a_call_is_tried_again_while_it_may_help(capsys: pytest.CaptureFixture[str]) -> None:
    answers: Iterator[Exception | int] = iter([AWAY, AWAY, 7])

    def call() -> int:
        answer = next(answers)
        if isinstance(answer, Exception):
            raise answer
        return answer

    assert retry.call_with_retries(call, "last.safetensors", 20) == 7
    assert capsys.readouterr().err == "last.safetensors: MLflow does not answer (Connection refused); waiting for it.\n"
    for error, seconds in ((GONE, 20), (AWAY, 0.0)):
        answers = iter([error, 7])
        with pytest.raises(MlflowException):
            retry.call_with_retries(call, "", seconds)


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[Exception]:
    """What the loop was asked to end with."""
    found: list[Exception] = []
    monkeypatch.setattr(stopping, "end_with", found.append)
    return found


def test_a_run_asks_the_loop_to_end_when_it_can_keep_no_more(asked: list[Exception]) -> None:
    store = Store()
    run = Run(store, "7" * 32)  # type: ignore[arg-type]
    run.metrics(1, {"lr": 0.1})
    run.flush()
    store.error = AWAY
    run.metrics(2, {"lr": 0.1, "train/loss": float("nan")})
    run.flush()
    assert not asked and store.taken == [1]
    run.minutes = run._queue.minutes = 1e-9
    run.metrics(3, {"lr": 0.1})
    (error,) = asked
    assert isinstance(error, TrackingError)
    assert str(error).endswith(
        f"(Connection refused); once that is fixed, python run.py resume={'7' * 32} continues it."
    )
    assert [update for *_, update in run.unflushed()] == [2, 3]


def test_a_run_ends_only_with_everything_sent() -> None:
    store = Store()
    with Run(store, "r") as run:  # type: ignore[arg-type]
        store.error = AWAY
        run.metrics(1, {"lr": 0.1})
        run.flush()
        threading.Timer(0.1, lambda: setattr(store, "error", None)).start()
    assert store.taken == [1] and store.status == "FINISHED"


def test_what_is_not_saved_at_the_end_is_an_error() -> None:
    store = Store()
    with pytest.raises(TrackingError, match="metrics could not be saved in MLflow \\(1 points, Connection refused\\)"):  # noqa: SIM117
        with Run(store, "r", minutes=0.001) as run:  # type: ignore[arg-type]
            store.error = AWAY
            run.metrics(1, {"lr": 0.1})


def test_a_job_that_failed_waits_for_nothing_and_says_what_is_missing(capsys: pytest.CaptureFixture[str]) -> None:
    store, begun = Store(), time.monotonic()
    with pytest.raises(UserError, match="the gradient"), Run(store, "r") as run:  # type: ignore[arg-type]
        store.error = AWAY
        run.metrics(1, {"lr": 0.1})
        run.flush()
        raise UserError("the gradient")
    assert time.monotonic() - begun < 60
    assert "metrics could not be saved in MLflow (1 points, Connection refused)" in capsys.readouterr().err


def test_unsent_points_of_a_checkpoint_are_not_made_twice(tmp_path: Path) -> None:
    store = Store()
    run = Run(store, "r", {("lr", 1)})  # type: ignore[arg-type]
    run.log_again([("lr", 0.1, 5, 1), ("lr", 0.1, 6, 2)])
    run.metrics(2, {"lr": 0.1, "eval/loss": 1.0})
    assert [(name, update) for name, _, _, update in run.unflushed()] == [("lr", 2), ("eval/loss", 2)]


def test_the_loop_ends_with_that_error_after_a_checkpoint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in (("_asked", False), ("_listening", False), ("_why", KeyboardInterrupt())):
        monkeypatch.setattr(stopping, name, value)
    kept = ResumeCheckpoints(schema.CheckpointSettings(), tmp_path, SINGLE_PROCESS, {})
    kept.watch(0)
    assert not kept.due(1)
    stopping.end_with(TrackingError("MLflow is gone"))
    assert kept.due(2)
    with pytest.raises(TrackingError, match="MLflow is gone"):
        kept.write(2, {"weights": np.zeros(3, np.float32)}, {})
    assert [path.name[:17] for path in resume_file.newest_first(tmp_path / "resume")] == ["update-0000000002"]
