"""A table of runs side by side, for the terminal."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Iterable

from rich import box
from rich.console import Console
from rich.table import Table

from msaccel.compare.collect import Group


def spread(values: list[float], shown: str) -> str:
    """`98.41% ± 0.12%`; the mean alone of a single value, a dash of none."""
    if not values:
        return "–"
    mean = shown.format(statistics.fmean(values))
    return f"{mean} ± {shown.format(statistics.stdev(values))}" if len(values) > 1 else mean


def lowest(values: list[float], shown: str) -> str:
    """The worst seed, which a mean hides."""
    return shown.format(min(values)) if values else "–"


# metric, heading, how one number is shown, and how the seeds' are summed up
COLUMNS = (
    ("final/accuracy", "final accuracy", "{:.2%}", spread),
    ("final/accuracy", "lowest", "{:.2%}", lowest),
    ("best/accuracy", "best accuracy", "{:.2%}", spread),
    ("throughput/samples_per_sec", "samples/s", "{:,.0f}", spread),
    ("time/train_s", "training s", "{:.1f}", spread),
    ("memory/peak_mb", "peak MB", "{:,.0f}", spread),
)


def table(groups: Iterable[Group]) -> Table:
    """A row for each group: its settings, the number of runs, and mean ± standard deviation of each metric."""
    groups = list(groups)
    drawn = Table(title="finished runs: mean ± standard deviation over n seeds", box=box.SIMPLE)
    for key in groups[0].settings if groups else ():
        drawn.add_column(key, overflow="fold")
    drawn.add_column("n", justify="right")
    for _, heading, _, _ in COLUMNS:
        drawn.add_column(heading, justify="right")
    for group in groups:
        numbers = [sum_up(group.metric(metric), shown) for metric, _, shown, sum_up in COLUMNS]
        drawn.add_row(*group.settings.values(), str(len(group.runs)), *numbers)
    return drawn


def remarks(groups: Iterable[Group]) -> list[str]:
    """What a reader must know before drawing a conclusion from the table."""
    groups = list(groups)
    said = []
    smallest = min((len(group.runs) for group in groups), default=0)
    if groups and smallest < 3:
        said.append(f"n = {smallest} is too small to tell a difference from chance; add seeds: seed=0,1,2,3,4")
    if repeats := sum(group.repeats for group in groups):
        said.append(f"{repeats} further runs repeat a seed with the same settings and are not counted")
    selected = Counter(run.data.tags.get("selected_on") for group in groups for run in group.runs)
    if selected["test"]:
        said.append("best accuracy was selected on the test set, so it flatters; data.val_fraction=0.0833 avoids that")
    return said


def show(groups: Iterable[Group]) -> None:
    groups = list(groups)
    console = Console()
    if not console.is_terminal:
        console = Console(width=160)  # a file or a pipe has no width of its own
    console.print(table(groups))
    for remark in remarks(groups):
        console.print(f"  {remark}", highlight=False)
