"""Plots as inline SVG that follow the page: text and axes take its colours, light or dark, and its fonts."""

from __future__ import annotations

import io
import re
from collections.abc import Mapping, Sequence
from typing import Any

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, MaxNLocator, NullFormatter, PercentFormatter, StrMethodFormatter
from numpy.typing import NDArray

from msaccel.compare.groups import MethodRuns
from msaccel.compare.measures import FINAL, THROUGHPUT, values
from msaccel.compare.measures import SECONDS as TRAIN_SECONDS
from msaccel.compare.render.curves import ACCURACY, LOSS, SAMPLES, SECONDS, UPDATES, Curve

# Told apart by colour-blind readers, and legible on white and on near-black.
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#56b4e9", "#b8860b")
_INK, _GRID = "#010203", "#040506"  # placeholders for the page's own
_STYLE: Any = {
    "svg.fonttype": "none",
    "font.family": "sans-serif",
    "font.size": 10,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.color": _GRID,
    "axes.axisbelow": True,
    **dict.fromkeys(("text.color", "axes.labelcolor", "xtick.color", "ytick.color", "axes.titlecolor"), _INK),
    "axes.edgecolor": _INK,
}
_AXES = {UPDATES: "updates", SAMPLES: "training samples", SECONDS: "seconds of training"}

Curves = Mapping[MethodRuns, Mapping[str, Sequence[Curve]]]


def colour(place: int) -> str:
    """Of the method at that place of its set."""
    return COLOURS[place % len(COLOURS)]


def draw(methods: Sequence[MethodRuns], curves: Curves, simulated: bool) -> dict[str, str]:
    """Every plot that the runs allow, as SVG by title."""
    drawn: dict[str, Figure | None] = {}
    with matplotlib.rc_context(_STYLE):
        for metric, name in ((LOSS, "Training loss"), (ACCURACY, "Test accuracy")):
            for axis, label in _AXES.items():
                drawn[f"{name} over {label}"] = _curves(methods, curves, metric, axis)
        drawn["Final accuracy of each seed"] = _seeds(methods)
        if not simulated:
            drawn["Accuracy against time"] = _frontier(methods)
            drawn["Throughput, mean ± standard deviation"] = _bars(methods)
        return {title: _svg(figure, f"f{place}") for place, (title, figure) in enumerate(drawn.items()) if figure}


def _figure() -> tuple[Figure, Axes]:
    figure = Figure(figsize=(4.6, 3.0), layout="constrained")
    FigureCanvasSVG(figure)
    return figure, figure.add_subplot()


def _curves(methods: Sequence[MethodRuns], curves: Curves, metric: str, axis: str) -> Figure | None:
    """A line for each seed."""
    figure, axes = _figure()
    for place, method in enumerate(methods):
        for curve in curves.get(method, {}).get(metric, ()):
            if axis in curve.at:
                marker = "o" if len(curve.values) < 20 else None
                style: dict[str, Any] = {"marker": marker, "markersize": 3, "linewidth": 1.3, "alpha": 0.75}
                axes.plot(curve.at[axis], curve.values, color=colour(place), **style)
    if not axes.lines:
        return None
    axes.set_xlabel(_AXES[axis])
    axes.xaxis.set_major_locator(MaxNLocator(5))
    axes.xaxis.set_major_formatter(StrMethodFormatter("{x:,g}"))
    if metric == LOSS and min(line.get_ydata().min() for line in axes.lines) > 0:  # type: ignore[union-attr]
        axes.set_yscale("log")
        axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        axes.yaxis.set_major_formatter(StrMethodFormatter("{x:g}"))
        axes.yaxis.set_minor_formatter(NullFormatter())
    if metric == ACCURACY:
        _percent(axes.yaxis, [np.asarray(line.get_ydata()) for line in axes.lines])
    return figure


def _seeds(methods: Sequence[MethodRuns]) -> Figure | None:
    """A point for each seed, a bar at the mean."""
    figure, axes = _figure()
    drawn = []
    for place, method in enumerate(methods):
        found = np.array(list(values(method, FINAL).values()))
        if len(found):
            drawn.append(found)
            offsets = np.linspace(-0.16, 0.16, len(found)) if len(found) > 1 else np.zeros(1)
            axes.plot(place + offsets, found, "o", color=colour(place), alpha=0.8, markersize=5)
            axes.hlines(found.mean(), place - 0.28, place + 0.28, color=colour(place), linewidth=2)
    if not drawn:
        return None
    _places(axes, methods)
    _percent(axes.yaxis, drawn)
    return figure


def _frontier(methods: Sequence[MethodRuns]) -> Figure | None:
    """Means of accuracy and seconds with both spreads; a line joins the methods that no other one beats in both."""
    figure, axes = _figure()
    means = []
    for place, method in enumerate(methods):
        seconds, accuracy = (np.array(list(values(method, m).values())) for m in (TRAIN_SECONDS, FINAL))
        if len(seconds) and len(accuracy):
            means.append((seconds.mean(), accuracy.mean()))
            bars = {"xerr": seconds.std(ddof=1), "yerr": accuracy.std(ddof=1)} if len(method.runs) > 1 else {}
            axes.errorbar(*means[-1], **bars, fmt="o", color=colour(place), capsize=3, markersize=6)
    if not means:
        return None
    best = [one for one in sorted(means) if not any(o[0] <= one[0] and o[1] >= one[1] and o != one for o in means)]
    axes.plot(*zip(*best, strict=True), color=_INK, linewidth=1, linestyle="--", alpha=0.5, zorder=1)
    axes.set_xlabel(_AXES[SECONDS])
    axes.xaxis.set_major_locator(MaxNLocator(5))
    _percent(axes.yaxis, [np.array([one[1] for one in means])])
    return figure


def _bars(methods: Sequence[MethodRuns]) -> Figure | None:
    figure, axes = _figure()
    for place, method in enumerate(methods):
        found = np.array(list(values(method, THROUGHPUT).values()))
        if len(found):
            error = found.std(ddof=1) if len(found) > 1 else None
            axes.bar(place, found.mean(), yerr=error, color=colour(place), capsize=4, ecolor=_INK, width=0.6)
    if not axes.patches:
        return None
    _places(axes, methods)
    axes.set_ylabel("samples/s")
    axes.yaxis.set_major_formatter(StrMethodFormatter("{x:,.0f}"))
    return figure


def _places(axes: Axes, methods: Sequence[MethodRuns]) -> None:
    """Numbers below the columns, as in the page's legend: names of methods are too long to stand there."""
    axes.set_xticks(range(len(methods)), [str(place + 1) for place in range(len(methods))])
    axes.set_xlim(-0.6, len(methods) - 0.4)
    axes.set_xlabel("method")
    axes.grid(visible=False, axis="x")


def _percent(axis: Any, drawn: Sequence[NDArray[np.float64]]) -> None:
    reach = float(np.ptp(np.concatenate(drawn)))
    axis.set_major_locator(MaxNLocator(6))
    axis.set_major_formatter(PercentFormatter(1.0, decimals=0 if reach > 0.06 else 1 if reach > 0.006 else 2))


def _svg(figure: Figure, prefix: str) -> str:
    """The figure as an element whose ids are its own, so that several stand in one page."""
    text = io.StringIO()
    with matplotlib.rc_context({"svg.hashsalt": prefix}):
        figure.savefig(text, format="svg", transparent=True, metadata={"Date": None, "Creator": None})
    svg = text.getvalue()
    svg = svg[svg.index("<svg") :]
    svg = re.sub(r"<metadata>.*?</metadata>", "", svg, flags=re.S)
    svg = re.sub(r' id="', f' id="{prefix}-', svg)
    svg = re.sub(r'(xlink:href="#|url\(#)', rf"\g<1>{prefix}-", svg)
    svg = re.sub(r'<svg ([^>]*?)width="[^"]*"', r"<svg \1", svg, count=1)
    svg = re.sub(r'<svg ([^>]*?)height="[^"]*"', r"<svg \1", svg, count=1)
    return svg.replace(_INK, "currentColor").replace(_GRID, "var(--grid)")
