"""A report as one HTML page that needs nothing else: styles and plots stand in it, and it asks no network."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

from jinja2 import Environment, PackageLoader, StrictUndefined

from msaccel.compare.fairness import counted
from msaccel.compare.measures import ACCURACY, COST, FINAL, SPEED, THROUGHPUT
from msaccel.compare.render import format, plots
from msaccel.compare.report import Report, Section
from msaccel.compare.verdicts import DOWN, UP, Comparison, Verdict

_STYLE = Path(__file__).with_name("style.css")
_MOST_NAMES = 50

Table = tuple[list[str], list[list[str]], int]  # headings, rows, and how many columns hold words


def page(report: Report, drawn: Mapping[Section, Mapping[str, str]], seeds: int, made: str) -> str:
    """The page.

    Args:
        drawn: the plots of the sections that have some, as SVG by title.
        seeds: how many of a method have curves.
        made: when and from what the report was made, a sentence.
    """
    templates = Environment(
        loader=PackageLoader("msaccel.compare.render"),
        autoescape=True,
        undefined=StrictUndefined,
        keep_trailing_newline=True,
    )
    return templates.get_template("report.html").render(
        report=report,
        drawn=drawn,
        made=made,
        style=_STYLE.read_text(),
        answers=_answers,
        methods=_methods,
        unjudged=_unjudged,
        counted=counted,
        style_of=plots.Style,
        seeds=seeds,
        most_names=_MOST_NAMES,
    )


def _answers(comparison: Comparison) -> Iterator[tuple[str, str, str | None]]:
    """What was found: a name, a text, and for a verdict its colour (`up`, `down` or none)."""
    for name, question, measure in (("accuracy", ACCURACY, FINAL), ("speed", SPEED, THROUGHPUT)):
        verdict = comparison.verdicts[question]
        yield name, format.verdict(verdict), _colour(verdict)
        if estimate := comparison.estimates.get(measure.name):
            yield "", format.estimate(estimate), None
    if cost := comparison.estimates.get(COST.name):
        yield "cost", f"{format.factor(cost.value)} × the forward-equivalents", None


def _colour(verdict: Verdict) -> str:
    return "up" if verdict.words in UP.values() else "down" if verdict.words in DOWN.values() else ""


def _methods(section: Section) -> Table:
    found = section.found
    return format.heads(found), [format.row(method, found) for method in found.methods], len(found.methods[0].settings)


def _unjudged(section: Section) -> Table | None:
    """The measures that get no verdict; None where there are none."""
    extra = format.against(section.found, [comparison.estimates for comparison in section.comparisons])
    if not extra:
        return None
    rows = [
        [
            comparison.pair.method.label,
            comparison.pair.name,
            *(format.estimate(comparison.estimates.get(m.name)) for m in extra),
        ]
        for comparison in section.comparisons
    ]
    return ["method", "baseline", *(measure.heading for measure in extra)], rows, 2
