"""The run of a rank other than the first, which logs nothing."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from msaccel.tracking.mlflow_run import Run

if TYPE_CHECKING:
    from msaccel.data.dataset import DatasetSplits


class NullRun(Run):
    """The run of a rank other than the first, which logs nothing."""

    def __init__(self) -> None:
        self.run_id = ""

    def metrics(self, update: int, values: Mapping[str, float]) -> None: ...
    def flush(self) -> None: ...
    def unflushed(self) -> list[tuple[str, float, int, int]]:
        return []

    def log_again(self, unflushed: list[tuple[str, float, int, int]]) -> None: ...
    def tag(self, /, **tags: str) -> None: ...
    def resumed(self, update: int, changed: dict[str, str]) -> None: ...
    def artifact(self, path: Path, folder: str | None = None) -> None: ...
    def text(self, name: str, text: str) -> None: ...
    def dataset(self, data: DatasetSplits, source: str) -> None: ...
    def failing(self) -> None: ...
    def end(self, status: str) -> None: ...
    def __enter__(self) -> Run:
        return self

    def __exit__(self, *ended: object) -> None: ...
