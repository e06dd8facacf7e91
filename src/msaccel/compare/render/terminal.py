"""A report in the terminal: for each set its methods, then the methods against their baselines, then reservations."""

from __future__ import annotations

from rich.console import Console

from msaccel.compare.measures import COST, FINAL, SPEED, THROUGHPUT
from msaccel.compare.method_runs import counted
from msaccel.compare.render import format
from msaccel.compare.render.fitted import show_rows, show_text
from msaccel.compare.render.rate_table import RATE_NOTE, rate_rows
from msaccel.compare.render.target_table import target_note, target_rows
from msaccel.compare.render.workload_table import WORKLOAD_NOTE, workload_rows
from msaccel.compare.report import Report, Section
from msaccel.compare.verdicts import Comparison


def show(report: Report) -> None:
    """Prints the report; no line is wider than the terminal, or than 80 characters in a file or a pipe."""
    console = Console(markup=False, emoji=False)
    if over := workload_rows(report):
        show_rows(console, WORKLOAD_NOTE.removesuffix("."), over[0], [(row[0], row) for row in over[1:]])
    for section in report.sections:
        _methods(console, section)
        if section.comparisons:
            rows = [(comparison.pair.method.label, line(comparison)) for comparison in section.comparisons]
            title = f"against the baseline: 95 % interval ({section.intervals}), p after Holm"
            show_rows(console, title, HEADINGS, rows)
        if of_rates := rate_rows(section):
            heads, *found = of_rates
            show_rows(console, RATE_NOTE.removesuffix("."), heads, [(row[0], row) for row in found])
        if rows_to_target := target_rows(section):
            heads, *found = rows_to_target
            show_rows(console, target_note(section), heads, [(row[0], row) for row in found])
        for sentence in [*(refusal.sentence for refusal in section.refused), *section.flags, *section.notes]:
            _note(console, sentence)
    if report.unfinished:
        _note(console, f"not finished, never averaged: {counted(report.unfinished)}")


def _methods(console: Console, section: Section) -> None:
    heads = format.heads(section.found)
    settings = len(section.found.methods[0].settings)
    labels = [method.label for method in section.found.methods]
    rows = list(zip(labels, format.rows(section.found), strict=True))
    title = f"{section.title}: mean ± standard deviation over n seeds"
    show_rows(console, title, heads, rows, settings, right=heads[settings:])


def _note(console: Console, sentence: str) -> None:
    show_text(console, sentence.removesuffix("."), "  - ", "    ")


HEADINGS = ("method", "baseline", "final accuracy", "verdict", "samples/s", "verdict", "cost")


def line(comparison: Comparison) -> list[str]:
    """The cells below HEADINGS: method, baseline, and both verdicts with the estimates behind them."""
    found = comparison.estimates
    cost = found.get(COST.name)
    return [
        comparison.pair.method.label,
        comparison.pair.name,
        format.estimate(found.get(FINAL.name)),
        format.verdict(comparison.accuracy),
        format.estimate(found.get(THROUGHPUT.name)),
        format.verdict(comparison.verdicts[SPEED]),
        f"{format.effect(cost)} forward" if cost else format.NONE,  # 3 a sample, a trial of a line search 1 more
    ]
