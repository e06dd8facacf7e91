"""A report as one self-contained HTML page: it includes styles and plots, and loads nothing over the network."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path

from jinja2 import ChoiceLoader, Environment, PackageLoader, StrictUndefined, Template

from msaccel.compare.method_runs import counted
from msaccel.compare.render import format, plots
from msaccel.compare.render.conclusion import conclude
from msaccel.compare.render.figures import Style
from msaccel.compare.render.forest import forests
from msaccel.compare.render.glossary import terms
from msaccel.compare.render.rate_table import RATE_NOTE, rate_rows
from msaccel.compare.render.target_table import target_note, target_rows
from msaccel.compare.render.workload_table import WORKLOAD_NOTE, workload_rows
from msaccel.compare.report import Report, Section
from msaccel.compare.runs import Record, short
from msaccel.tracking import ui_links
from msaccel.tracking.credentials import is_server

_STYLE, _SMOOTHING = (Path(__file__).with_name(name) for name in ("style.css", "smoothing.js"))
_MAX_NAMES = 50
_ORIGIN = ("processor", "kernels", "git_commit")  # tags of a run

Table = tuple[list[str], list[list[str]], int]  # headings, rows, and how many columns hold words


def page(report: Report, drawn: Mapping[Section, Mapping[str, str]], seeds: int, made: str, tracking_uri: str) -> str:
    """The page.

    Args:
        drawn: the plots of the sections that have some, as SVG by title.
        seeds: how many of a method have curves.
        made: when and from what the report was made, a sentence.
        tracking_uri: the store. If it is a server, which others can reach too, runs link to their pages.
    """
    return template("msaccel.compare.render", "report.html").render(
        report=report,
        drawn=drawn,
        made=made,
        script=_SMOOTHING.read_text() if any(map(plots.has_curves, drawn.values())) else "",
        has_curves=plots.has_curves,
        page_of=partial(ui_links.run, ui_links.server_of(tracking_uri)) if is_server(tracking_uri) else None,
        conclusion=conclude(report),
        forests=forests,
        terms=terms,
        methods=_methods,
        unjudged=_unjudged,
        over_workloads=workload_rows(report),
        workload_note=WORKLOAD_NOTE,
        rate_rows=rate_rows,
        rate_note=RATE_NOTE,
        target_rows=target_rows,
        target_note=target_note,
        origin=origin,
        counted=counted,
        style_of=Style,
        seeds=seeds,
        most_names=_MAX_NAMES,
    )


def template(package: str, name: str) -> Template:
    """A template of a package, which may use the macros and has the style of all pages."""
    loader = ChoiceLoader([PackageLoader(package), PackageLoader("msaccel.compare.render")])
    templates = Environment(loader=loader, autoescape=True, undefined=StrictUndefined, keep_trailing_newline=True)
    return templates.get_template(name, globals={"style": _STYLE.read_text()})


def _methods(section: Section) -> Table:
    found = section.found
    return format.heads(found), format.rows(found), len(found.methods[0].settings)


def origin(runs: Sequence[Record]) -> list[str]:
    """What runs were trained with, listing all values if they differ: `kernels: unfold`."""
    found = {tag: sorted({run.tags.get(tag, "unknown") for run in runs}) for tag in _ORIGIN}
    found["git_commit"] = [short(commit) for commit in found["git_commit"]]
    return [f"{tag}: {', '.join(values)}" for tag, values in found.items()]


def _unjudged(section: Section) -> Table | None:
    """The measures that get no verdict; None where there are none."""
    extra = format.without_verdict([comparison.estimates for comparison in section.comparisons])
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
