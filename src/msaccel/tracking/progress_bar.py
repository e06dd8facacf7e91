"""The progress bar: quiet when nobody watches a terminal."""

from __future__ import annotations

import sys
from types import TracebackType

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn


class ProgressBar:
    """One line with updates done, loss, accuracy, samples per second and time left."""

    def __init__(self, title: str, total: int, quiet: bool) -> None:
        self._progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(bar_width=24),
            MofNCompleteColumn(),
            TextColumn("{task.fields[measured]}"),
            TimeRemainingColumn(),
            console=Console(stderr=True),
            disable=quiet or not sys.stderr.isatty(),
            transient=True,
        )
        self._task = self._progress.add_task(title, total=total, measured="")

    def show(self, update: int, loss: float, accuracy: float, samples_per_sec: float | None) -> None:
        """Shows an update; without a speed where that means nothing, as with virtual ranks."""
        speed = "" if samples_per_sec is None else f"  {samples_per_sec:,.0f} samples/s"
        measured = f"loss {loss:.3f}  accuracy {accuracy:.1%}{speed}"
        self._progress.update(self._task, completed=update, measured=measured)

    def __enter__(self) -> ProgressBar:
        self._progress.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._progress.stop()
