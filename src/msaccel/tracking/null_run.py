"""The run of a rank other than the first, which logs nothing."""

from __future__ import annotations

from collections.abc import Mapping

from msaccel.tracking.mlflow_run import Run


class NullRun(Run):
    """The run of a rank other than the first, which logs nothing."""

    def __init__(self) -> None:
        self.run_id = ""

    def metrics(self, update: int, values: Mapping[str, float]) -> None: ...
    def unflushed(self) -> list[tuple[str, float, int, int]]:
        return []

    def log_again(self, unflushed: list[tuple[str, float, int, int]]) -> None: ...
    def __enter__(self) -> Run:
        return self

    def __exit__(self, *ended: object) -> None: ...
