"""Metrics on their way to MLflow: kept until it has them.

A thread sends them, in batches. While all is well the loop waits for it, with its clock paused, so that no work of
tracking falls into the time of training. Where MLflow does not answer, the loop goes on at once: the thread tries
again every two seconds, and what it could not send stays in order. There is a bound to that, in points and minutes.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from mlflow.entities import Metric

from msaccel.tracking import retry

MOST_AT_ONCE = 1000  # that MLflow takes in one call
MOST_KEPT = 100_000  # points, each some 700 bytes
SECONDS_FOR_A_FLUSH = 5.0  # that the loop waits for a call that takes long without failing


@dataclass
class Trouble:
    """MLflow has not taken the last batch.

    Attributes:
        since: when that was first so, by the clock of `time.monotonic`.
        reason: why, in a few words.
        lasting: waiting does not mend it.
    """

    since: float
    reason: str
    lasting: bool


@dataclass
class MetricQueue:
    """Points in the order in which they were added, until they are sent.

    Attributes:
        send: gives MLflow some points, or raises.
        minutes: for which points are kept while MLflow does not answer.
    """

    send: Callable[[Sequence[Metric]], None]
    minutes: float = 60.0
    _points: list[Metric] = field(default_factory=list)
    _trouble: Trouble | None = None
    _wanted: bool = False
    _hangs: bool = False  # the call under way was waited for once, and that is enough
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

    @property
    def trouble(self) -> Trouble | None:
        return self._trouble

    def flush(self) -> None:
        """Has all points sent, and waits for it unless MLflow does not answer."""
        self._start()
        with self._changed:
            if not self._hangs:
                idle = self._changed.wait_for(lambda: not self._wanted or self._trouble, SECONDS_FOR_A_FLUSH)
                self._hangs = not idle

    def empty(self, seconds: float) -> bool:
        """Waits until all points are sent, at most so long for a batch and not where that is no use; whether they are.

        A store that is slow and takes them is not given up.
        """
        self._start()
        until, left = time.monotonic() + seconds, len(self._points)
        with self._changed:
            while self._wanted and not (self._trouble and self._trouble.lasting):
                if not self._changed.wait(max(0.0, until - time.monotonic())):
                    break
                if len(self._points) < left:
                    until, left = time.monotonic() + seconds, len(self._points)
            return not self._wanted

    def overdue(self) -> str:
        """Why points cannot be kept any longer; nothing while they can."""
        trouble = self._trouble
        if trouble is None:
            return ""
        if trouble.lasting:
            return f"MLflow does not take the metrics ({trouble.reason})"
        if time.monotonic() - trouble.since > 60 * self.minutes:
            return f"MLflow has taken no metrics for {self.minutes:g} minutes ({trouble.reason})"
        if len(self._points) > MOST_KEPT:
            return f"MLflow takes no metrics ({trouble.reason}), and more than {MOST_KEPT:,} wait for it"
        return ""

    def _start(self) -> None:
        with self._changed:
            self._wanted = bool(self._points)
            if self._wanted and self._thread is None:
                self._thread = threading.Thread(target=self._work, daemon=True)
                self._thread.start()
            self._changed.notify_all()

    def _work(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._wanted)
                batch = self._points[:MOST_AT_ONCE]
            try:
                self.send(batch)
            except Exception as error:
                self._failed(error)
                time.sleep(retry.SECONDS_BETWEEN_TRIES)
            else:
                self._sent(len(batch))

    def _failed(self, error: Exception) -> None:
        reason, lasting = retry.reason(error), retry.lasting(error)
        with self._changed:
            self._hangs, before = False, self._trouble
            self._trouble = Trouble(before.since if before else time.monotonic(), reason, lasting)
            self._changed.notify_all()
        if before is None and not lasting:
            print(
                f"MLflow does not answer ({reason}); training goes on, and keeps up to {MOST_KEPT:,} metrics for "
                f"{self.minutes:g} minutes.",
                file=sys.stderr,
            )

    def _sent(self, count: int) -> None:
        with self._changed:
            self._hangs, before, self._trouble = False, self._trouble, None
            del self._points[:count]
            self._wanted = bool(self._points)
            self._changed.notify_all()
        if before:
            seconds = time.monotonic() - before.since
            print(f"MLflow answers again, after {seconds:.0f} s; what it has missed is sent now.", file=sys.stderr)
