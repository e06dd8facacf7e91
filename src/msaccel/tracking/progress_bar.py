"""How far a job is, in the terminal: a bar that fits its width, or a line every 30 s where there is no terminal."""

from __future__ import annotations

import logging
import shutil
import sys
import threading
import time
from dataclasses import dataclass, replace

from rich.console import Console, ConsoleOptions, RenderResult
from rich.live import Live
from rich.progress_bar import ProgressBar as Bar
from rich.text import Text

SECONDS = 30.0  # between two lines
_LEAST_BAR = 10  # characters; with less room than this there is no bar
_MAX_BAR = 30
_GAP = "  "
_DROPPED = ("speed", "accuracy", "epoch", "stage", "loss", "left", "update")  # in this order, if they do not fit

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class LogPoint:
    """What is shown of a job at a log point.

    Attributes:
        stage, stages: the current one, counted from 1, and their number, for a job with several.
        epoch, epochs: the current one, counted from 1, and their number.
        accuracy: 0 to 1.
        samples_per_sec: None where it means nothing, as with virtual ranks.
        seconds_left: None if unknown.
    """

    stage: int
    stages: int
    epoch: int
    epochs: int
    update: int
    updates: int
    loss: float
    accuracy: float
    samples_per_sec: float | None
    seconds_left: float | None


def line(at: LogPoint, columns: int, least_bar: int = 0) -> str:
    """A log point in at most `columns` characters: if it does not fit, with short words, then with fewer fields.

    Args:
        least_bar: characters that short words should leave for a bar.
    """
    updates = f"{at.updates:,}"
    updates = f"{at.update:>{len(updates)},}/{updates}"
    fields = {
        "stage": f"stage {at.stage}/{at.stages}" if at.stages > 1 else "",
        "epoch": f"epoch {at.epoch}/{at.epochs}",
        "update": f"update {updates}",
        "loss": f"loss {at.loss:.3f}" if abs(at.loss) < 1000 else f"loss {at.loss:.3g}",
        "accuracy": f"accuracy {at.accuracy:.1%}",
        "speed": "" if at.samples_per_sec is None else f"{at.samples_per_sec:,.0f} samples/s",
        "left": "" if at.seconds_left is None else f"{span(at.seconds_left)} left",
    }
    if len(_joined(fields)) > columns - least_bar:
        shorter = {
            "update": updates,
            "accuracy": f"acc {at.accuracy:.1%}",
            "speed": fields["speed"].replace(" samples", ""),
        }
        fields |= shorter
    for name in _DROPPED:
        if len(_joined(fields)) > columns:
            del fields[name]
    return _joined(fields)


def _joined(fields: dict[str, str]) -> str:
    return _GAP.join(text for text in fields.values() if text)


def span(seconds: float) -> str:
    """`45 s`, `12 min`, `3 h 05 min`, `2 days`."""
    rounded = max(0, round(seconds))
    if rounded < 90:
        return f"{rounded} s"
    minutes = round(rounded / 60)
    if minutes < 90:
        return f"{minutes} min"
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes:02} min" if hours < 48 else f"{hours // 24} days"


class ProgressBar:
    """Shows a job's last log point, as long as it is entered.

    Args:
        name: printed before each line; a bar needs none.
        alone: whether no other job writes to the same terminal, so that there can be a bar.
        silent: whether to show nothing, as on all ranks but the first.
    """

    def __init__(self, name: str, alone: bool = True, silent: bool = False) -> None:
        self.name, self._silent = name, silent
        self._at: LogPoint | None = None
        self._since = 0.0
        self._over = threading.Event()
        self._live: Live | None = None
        if alone and not silent and sys.stderr.isatty():
            # Messages pass through the terminal above the bar, unless they go somewhere else.
            console, mixed = Console(stderr=True), sys.stdout.isatty()
            self._live = Live(self, console=console, transient=True, redirect_stdout=mixed)

    def show(self, at: LogPoint) -> None:
        self._at, self._since = at, time.monotonic()

    def line(self, columns: int, least_bar: int = 0) -> str:
        """The last log point, with the time left now."""
        at = self._at
        if at is None:
            return "starting"[: max(0, columns)]
        if at.seconds_left is not None:
            at = replace(at, seconds_left=max(0.0, at.seconds_left - (time.monotonic() - self._since)))
        return line(at, columns, least_bar)

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        text, at = self.line(options.max_width, _LEAST_BAR + len(_GAP)), self._at
        room = options.max_width - len(text) - len(_GAP)
        yield Text(text, no_wrap=True, end="")
        if at and room >= _LEAST_BAR:
            yield Text(_GAP, end="")
            yield Bar(at.updates, at.update, width=min(_MAX_BAR, room))

    def __enter__(self) -> ProgressBar:
        if self._live:
            self._live.start()
        elif not self._silent:
            threading.Thread(target=self._log_lines, daemon=True).start()
        return self

    def __exit__(self, *raised: object) -> None:
        self._over.set()
        if self._live:
            self._live.stop()

    def _log_lines(self) -> None:
        while not self._over.wait(SECONDS):
            columns = shutil.get_terminal_size().columns
            _log.info("%s: %s", self.name, self.line(columns - len(self.name) - 2))
