"""Metrics that wait for MLflow: kept until it has confirmed them.

A thread sends them in batches. As long as MLflow answers, the training loop waits for the thread with its clock paused,
so that tracking takes no measured time. If MLflow does not answer, the loop continues at once: the thread tries again
every two seconds, and the points are kept in order, up to a maximum number and for a maximum time.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from mlflow.entities import Metric

from msaccel.tracking import retry

_log = logging.getLogger(__name__)

MOST_AT_ONCE = 1000  # the most that MLflow takes in one call
MAX_KEPT = 100_000  # points, each some 700 bytes
SECONDS_FOR_A_FLUSH = 5.0  # the longest that the loop waits for a slow call


@dataclass
class SendFailure:
    """Why MLflow has not taken the last batch.

    Attributes:
        since: when the first of the consecutive failures happened, by `time.monotonic`.
        reason: why, in a few words.
        permanent: whether waiting is no use.
        lost: whether the run is not in the store any more.
    """

    since: float
    reason: str
    permanent: bool
    lost: bool


@dataclass
class MetricQueue:
    """Points in the order in which they were added, until they are sent.

    Attributes:
        send: gives MLflow some points, or raises.
        minutes: how long points are kept while MLflow does not answer.
        failure: why the last batch failed; None while MLflow takes them.
    """

    send: Callable[[Sequence[Metric]], None]
    minutes: float = 60.0
    failure: SendFailure | None = field(default=None, init=False)
    _points: list[Metric] = field(default_factory=list)
    _sending: bool = False
    _slow: bool = False  # `flush` has waited once for the call under way, and does not again
    _thread: threading.Thread | None = None

    def __post_init__(self) -> None:
        self._changed = threading.Condition()

    def __len__(self) -> int:
        return len(self._points)

    def add(self, points: Sequence[Metric]) -> None:
        with self._changed:
            self._points += points

    def unsent(self) -> list[Metric]:
        """The points that MLflow has not confirmed."""
        with self._changed:
            return list(self._points)

    def flush(self) -> None:
        """Sends all points; returns when they are sent, when a try fails, or when a call takes too long."""
        self._start()
        with self._changed:
            if not self._slow:
                done = self._changed.wait_for(lambda: not self._sending or self.failure, SECONDS_FOR_A_FLUSH)
                self._slow = not done

    def drain(self, seconds: float) -> bool:
        """Waits until all points are sent, and returns whether they are.

        Args:
            seconds: at most for each batch, so that a slow store is not given up; no wait after a permanent failure.
        """
        self._start()
        until, left = time.monotonic() + seconds, len(self._points)
        with self._changed:
            while self._sending and not (self.failure and self.failure.permanent):
                if not self._changed.wait(max(0.0, until - time.monotonic())):
                    break
                if len(self._points) < left:
                    until, left = time.monotonic() + seconds, len(self._points)
            return not self._sending

    def reason_to_stop(self) -> str:
        """Why points cannot be kept any longer; empty while they can."""
        failure = self.failure
        if failure is None:
            return ""
        if failure.permanent:
            return f"MLflow does not take the metrics ({failure.reason})"
        if time.monotonic() - failure.since > 60 * self.minutes:
            return f"MLflow has taken no metrics for {self.minutes:g} minutes ({failure.reason})"
        if len(self._points) > MAX_KEPT:
            return f"MLflow takes no metrics ({failure.reason}), and more than {MAX_KEPT:,} wait for it"
        return ""

    def _start(self) -> None:
        with self._changed:
            self._sending = bool(self._points)
            if self._sending and self._thread is None:
                self._thread = threading.Thread(target=self._work, daemon=True)
                self._thread.start()
            self._changed.notify_all()

    def _work(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._sending)
                batch = self._points[:MOST_AT_ONCE]
            try:
                self.send(batch)
            except Exception as error:
                self._failed(error)
                time.sleep(retry.SECONDS_BETWEEN_TRIES)
            else:
                self._sent(len(batch))

    def _failed(self, error: Exception) -> None:
        reason, permanent, lost = retry.reason(error), retry.is_permanent(error), retry.is_lost(error)
        with self._changed:
            self._slow, before = False, self.failure
            self.failure = SendFailure(before.since if before else time.monotonic(), reason, permanent, lost)
            self._changed.notify_all()
        if before is None and not permanent:
            _log.warning(
                "MLflow does not answer (%s); training goes on, and keeps up to %s metrics for %g minutes.",
                reason,
                f"{MAX_KEPT:,}",
                self.minutes,
            )

    def _sent(self, count: int) -> None:
        with self._changed:
            self._slow, before, self.failure = False, self.failure, None
            del self._points[:count]
            self._sending = bool(self._points)
            self._changed.notify_all()
        if before:
            seconds = time.monotonic() - before.since
            _log.warning("MLflow answers again, after %.0f s; what it has missed is sent now.", seconds)
