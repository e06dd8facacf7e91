"""Plots of studies: accuracy over the rate for a card, and all differences from baselines for the README."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

from msaccel.compare.groups import group
from msaccel.compare.measures import FINAL
from msaccel.compare.render.figures import PERCENT, Style
from msaccel.compare.report import titles
from msaccel.compare.runs import Record
from msaccel.study.jobs import StudyJob
from msaccel.study.protocol import StudyPart
from msaccel.study.results import StudyComparison
from msaccel.study.runner import StudyRunner

_COLUMNS = 3


def rates(runner: StudyRunner) -> Figure | None:
    """Final accuracy of every run over its rate, a panel for each set of conditions; None if no rate was chosen."""
    tuned = [part for part in runner.study.parts.values() if len(part.rates) > 1]
    panels = [panel for part in tuned for panel in _panels(runner, part)]
    if not panels:
        return None
    columns = min(_COLUMNS, len(panels))
    figure = Figure(figsize=(4.4 * columns, 3.4 * -(-len(panels) // columns)), layout="constrained")
    FigureCanvasAgg(figure)
    for place, (title, runs) in enumerate(panels):
        _panel(figure.add_subplot(-(-len(panels) // columns), columns, place + 1), title, runs)
    return figure


def _panels(runner: StudyRunner, part: StudyPart) -> list[tuple[str, dict[StudyJob, Record]]]:
    found = {job: run for job, run in runner.runs.of_jobs(runner.jobs(part)).items() if "final/accuracy" in run.metrics}
    of_run = {run.run_id: job for job, run in found.items()}
    sets = [one for one in group(found.values()) if one.methods]
    named = titles(sets) if len(sets) > 1 else [part.title]
    members = [{of_run[run.run_id]: run for method in one.methods for run in method.runs} for one in sets]
    return list(zip(named, members, strict=True))


def _panel(axes: Axes, title: str, runs: Mapping[StudyJob, Record]) -> None:
    """A point for each seed, and a line through the means."""
    by_method: dict[str, dict[float, list[float]]] = defaultdict(lambda: defaultdict(list))
    for job, run in runs.items():
        value = FINAL.read(run)
        if value is not None:
            by_method[job.arm][job.rate].append(value)
    for place, (method, values) in enumerate(by_method.items()):
        at = sorted(values)
        style, means = Style(place), [np.mean(values[rate]) for rate in at]
        axes.plot(at, means, linewidth=1.4, label=method, **style.line(len(at)) | {"marker": None})
        for rate in at:
            points = [rate] * len(values[rate]), values[rate]
            axes.plot(*points, style.marker, color=style.colour, alpha=0.6, markersize=4)
    tried = sorted({rate for values in by_method.values() for rate in values})
    axes.set_xscale("log")
    axes.xaxis.set_major_locator(FixedLocator(tried))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axes.yaxis.set_major_formatter(PERCENT)
    axes.set_title(title, fontsize=9)
    axes.set_xlabel("learning rate")
    axes.set_ylabel("final accuracy")
    axes.grid(alpha=0.3)
    axes.legend(fontsize=8)


def differences(pairs: Sequence[StudyComparison]) -> Figure | None:
    """Accuracy of each method less its baseline's, in points, with its 95 % interval; None without an interval."""
    known = [(one, estimate) for one in pairs if (estimate := one.accuracy.estimates.get(FINAL.name)) is not None]
    if not known:
        return None
    figure = Figure(figsize=(10, 0.9 + 0.36 * len(known)), layout="constrained")
    FigureCanvasAgg(figure)
    axes, studies = figure.add_subplot(), list(dict.fromkeys(one.study for one, _ in known))
    for place, (one, estimate) in enumerate(known):
        shade = Style(studies.index(one.study)).colour
        if estimate.low is not None and estimate.high is not None:
            axes.plot([100 * estimate.low, 100 * estimate.high], [place, place], color=shade, linewidth=2)
        axes.plot(100 * estimate.value, place, "o", color=shade)
    names = [f"{one.study}: {one.method}\nagainst {one.baseline}" for one, _ in known]
    axes.set_yticks(range(len(names)), names, fontsize=7)
    axes.invert_yaxis()
    axes.axvline(0, color="black", linewidth=0.8)
    axes.set_xscale("symlog", linthresh=1)
    axes.xaxis.set_major_locator(
        FixedLocator([sign * size for size in (50, 20, 10, 5, 2, 1) for sign in (-1, 1)] + [0])
    )
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:+g}" if value else "0"))
    axes.set_xlabel("points of test accuracy, 95 % interval; logarithmic beyond one point")
    axes.grid(alpha=0.3, axis="x")
    return figure


def save(figure: Figure | None, path: Path) -> None:
    """Writes a figure as PNG, if there is one."""
    if figure is not None:
        path.parent.mkdir(parents=True, exist_ok=True)
        figure.savefig(path, dpi=100, metadata={"Software": None})
