"""A sign of life in MLflow: a RUNNING run without a recent one was killed, and can be resumed."""

from __future__ import annotations

import threading
from contextlib import suppress
from datetime import datetime, timezone

from mlflow import MlflowClient

HEARTBEAT = "heartbeat"  # the tag: a time in UTC
SECONDS = 30.0  # between two heartbeats


def now() -> str:
    """The time as the tag holds it, `2026-11-20T13:05:00+00:00`."""
    return datetime.now(timezone.utc).isoformat(timespec="seconds")


class Heartbeat:
    """Sets the tag every `SECONDS` from a thread of its own, also during long evaluations."""

    def __init__(self, client: MlflowClient, run_id: str) -> None:
        self.client, self.run_id = client, run_id
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._beat, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stop.set()

    def _beat(self) -> None:
        while not self._stop.wait(SECONDS):
            with suppress(Exception):  # a server that is away for a while; what must not be lost is logged elsewhere
                self.client.set_tag(self.run_id, HEARTBEAT, now())
