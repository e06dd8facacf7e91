"""A report in the terminal: for each set its methods, then the methods against their baselines, then reservations."""

from __future__ import annotations

from rich import box
from rich.console import Console
from rich.table import Table

from msaccel.compare.fairness import counted
from msaccel.compare.measures import ACCURACY, COST, FINAL, SPEED, THROUGHPUT
from msaccel.compare.render import format
from msaccel.compare.report import Report, Section
from msaccel.compare.verdicts import Comparison

_WIDTH = 160  # a file or a pipe has no width of its own


def show(report: Report) -> None:
    console = Console(markup=False, emoji=False)
    if not console.is_terminal:
        console.width = _WIDTH
    for section in report.sections:
        console.print(_methods(section))
        if section.comparisons:
            console.print(_comparisons(section))
        for sentence in [*(refusal.sentence for refusal in section.refused), *section.flags, *section.notes]:
            console.print(f"  - {sentence}", highlight=False)
    if report.unfinished:
        console.print(f"  - not finished, never averaged: {counted(report.unfinished)}", highlight=False)


def _methods(section: Section) -> Table:
    table = Table(title=f"{section.title}: mean ± standard deviation over n seeds", box=box.SIMPLE)
    for place, head in enumerate(format.heads(section.found)):
        setting = place < len(section.found.methods[0].settings)
        table.add_column(head, overflow="fold", justify="left" if setting else "right")
    for method in section.found.methods:
        table.add_row(*format.row(method, section.found))
    return table


def _comparisons(section: Section) -> Table:
    table = Table(title="against the baseline: 95 % interval (Welch), p after Holm", box=box.SIMPLE)
    for head in HEADINGS:
        table.add_column(head, overflow="fold")
    for comparison in section.comparisons:
        table.add_row(*line(comparison))
    return table


HEADINGS = ("method", "baseline", "final accuracy", "verdict", "samples/s", "verdict", "cost")


def line(comparison: Comparison) -> list[str]:
    """Below HEADINGS: method, baseline, and both verdicts with what they rest on."""
    found = comparison.estimates
    return [
        comparison.pair.method.label,
        comparison.pair.name,
        format.estimate(found.get(FINAL.name)),
        format.verdict(comparison.verdicts[ACCURACY]),
        format.estimate(found.get(THROUGHPUT.name)),
        format.verdict(comparison.verdicts[SPEED]),
        cost(comparison),
    ]


def cost(comparison: Comparison) -> str:
    """Forward-equivalents over the baseline's: 1 update is 3 a sample, a trial of a line search 1 more."""
    found = comparison.estimates.get(COST.name)
    return format.NONE if found is None else f"{format.factor(found.value)} × forward"
