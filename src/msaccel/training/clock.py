"""The two clocks of a job: training, and compiling. Evaluation, tracking and checkpoints run with both stopped."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager


class Clock:
    """Seconds of wall time, counted only inside `running`."""

    def __init__(self, before: float = 0.0) -> None:
        self._before = before
        self._since: float | None = None

    @property
    def seconds(self) -> float:
        """Seconds counted so far."""
        return self._before + (time.perf_counter() - self._since if self._since is not None else 0.0)

    @contextmanager
    def running(self) -> Iterator[None]:
        self._since = time.perf_counter()
        try:
            yield
        finally:
            self._before, self._since = self.seconds, None

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Inside `running`: what happens here does not count."""
        self._before, self._since = self.seconds, None
        try:
            yield
        finally:
            self._since = time.perf_counter()
