"""A report as Markdown: for a file of its own, and for the card of a study."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from msaccel.compare.groups import ComparisonSet
from msaccel.compare.measures import COST
from msaccel.compare.method_runs import counted
from msaccel.compare.render import format
from msaccel.compare.render.conclusion import conclude
from msaccel.compare.render.rate_table import RATE_NOTE, rate_rows
from msaccel.compare.render.target_table import target_note, target_rows
from msaccel.compare.render.terminal import HEADINGS, line
from msaccel.compare.render.workload_table import WORKLOAD_NOTE, workload_rows
from msaccel.compare.report import Report, Section


def document(report: Report) -> str:
    """The whole report: its conclusion, then a heading for each set."""
    found = conclude(report)
    blocks = ["# Comparison", escape(found.sentence)]
    if found.facts:
        number = f"{found.number} {found.unit}. ".lstrip(" .")
        blocks.append(number + escape(" ".join(found.facts)))
    if over := workload_rows(report):
        blocks += [table([over[0], *([escape(row[0]), *row[1:]] for row in over[1:])]), WORKLOAD_NOTE]
    for section in report.sections:
        blocks += [f"## {escape(section.title)}", section_text(section)]
    if report.unfinished:
        names = ", ".join(f"{escape(run.name)} {run.status}" for run in report.unfinished)
        blocks += ["## Not finished", f"Never averaged ({counted(report.unfinished)}): {names}."]
    return "\n\n".join(blocks) + "\n"


def tables(report: Report) -> str:
    """What stands in a card: the tables of each set, under its conditions where there are several."""
    several = len(report.sections) > 1
    texts = [
        f"**{escape(section.title)}**\n\n{section_text(section)}" if several else section_text(section)
        for section in report.sections
    ]
    return "\n\n".join(texts)


def section_text(section: Section) -> str:
    """Methods, methods against baselines, reservations."""
    blocks = [table(method_rows(section.found))]
    if section.comparisons:
        blocks.append(table(list(_comparisons(section))))
        blocks.append(
            f"In brackets 95 % intervals ({section.intervals}); p after Holm's correction over the report's verdicts "
            "of a question."
        )
    for rows, note in ((rate_rows(section), RATE_NOTE), (target_rows(section), target_note(section))):
        if rows:
            heads, *found = rows
            blocks += [table([heads, *([escape(row[0]), *row[1:]] for row in found)]), note]
    said = [*(refusal.sentence for refusal in section.refused), *section.flags, *section.notes]
    if said:
        blocks.append("\n".join(f"- {escape(sentence)}" for sentence in said))
    return "\n\n".join(blocks)


def method_rows(found: ComparisonSet) -> list[list[str]]:
    """Headings, and a row for each method."""
    words = len(found.methods[0].settings)
    return [[*map(escape, row[:words]), *row[words:]] for row in [format.heads(found), *format.rows(found)]]


def escape(text: str) -> str:
    """A text from the store without Markdown or HTML in it; `table` escapes what separates cells."""
    return re.sub(r"([\\`*<>\[\]])", r"\\\1", text)


def table(rows: Sequence[Sequence[str]]) -> str:
    """Rows of cells, the first of which are headings."""
    lines = [list(rows[0]), ["---"] * len(rows[0]), *map(list, rows[1:])]
    return "\n".join(f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in line)} |" for line in lines)


def _comparisons(section: Section) -> Iterator[list[str]]:
    extra = format.without_verdict([comparison.estimates for comparison in section.comparisons])
    extra = [measure for measure in extra if measure is not COST]
    yield [*HEADINGS, *(measure.heading for measure in extra)]
    for comparison in section.comparisons:
        found = comparison.estimates
        method, *rest = line(comparison)
        yield [escape(method), *rest, *(format.estimate(found.get(measure.name)) for measure in extra)]
