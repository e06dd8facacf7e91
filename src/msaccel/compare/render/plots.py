"""Plots as inline SVG that follow the page: text and axes take its colours, light or dark, and its fonts."""

from __future__ import annotations

import io
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullFormatter, StrMethodFormatter

from msaccel.compare.measures import FINAL, THROUGHPUT, values
from msaccel.compare.measures import SECONDS as TRAIN_SECONDS
from msaccel.compare.method_runs import MethodRuns
from msaccel.compare.rate_curves import RateCurve
from msaccel.compare.render.curves import ACCURACY, LOSS, SAMPLES, SECONDS, UPDATES, Curve
from msaccel.compare.targets import SAMPLES as TARGET_SAMPLES
from msaccel.compare.targets import times
from msaccel.tracking.saved_view import COLOURS

# From the seventh method on colours repeat with other dashes (line, gap, …) and markers: 168 methods are told apart.
_DASHES = ((), (5, 2), (1, 1.5), (6, 2, 1, 2))
_MARKERS = {"o": "●", "s": "■", "^": "▲", "D": "◆", "v": "▼", "P": "✚", "X": "✖"}
# Labels of ticks state the whole number that they stand for.
PERCENT = FuncFormatter(lambda value, _: f"{100 * value:.10g}%")
_NUMBER = StrMethodFormatter("{x:,.10g}")
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
    "path.simplify": False,  # smoothing.js averages over all points
}
_CURVE = "curve"  # with which the ids of lines begin that smoothing.js finds
_FEW = 20
_AXES = {UPDATES: "updates", SAMPLES: "training samples", SECONDS: "seconds of training"}

Curves = Mapping[MethodRuns, Mapping[str, Sequence[Curve]]]


@dataclass(frozen=True)
class Style:
    """What tells the method at a place of its set from the others: colour, dashes and marker."""

    place: int

    @property
    def colour(self) -> str:
        return COLOURS[self.place % len(COLOURS)]

    @property
    def dashes(self) -> tuple[float, ...]:
        return _DASHES[self._round % len(_DASHES)]

    @property
    def marker(self) -> str:
        return list(_MARKERS)[self._round % len(_MARKERS)]

    @property
    def glyph(self) -> str:
        """The marker as a character."""
        return _MARKERS[self.marker]

    def line(self, points: int) -> dict[str, Any]:
        """How matplotlib draws a curve: few points have markers, and all curves whose colour is used again."""
        marked = points < _FEW or self._round > 0
        dashes = (0, self.dashes) if self.dashes else "solid"
        return {
            "color": self.colour,
            "linestyle": dashes,
            "marker": self.marker if marked else None,
            "markevery": max(1, points // _FEW),
        }

    @property
    def _round(self) -> int:
        return self.place // len(COLOURS)


def draw(
    methods: Sequence[MethodRuns], curves: Curves, rates: Sequence[RateCurve], simulated: bool, prefix: str
) -> dict[str, str]:
    """Every plot that the runs allow, as SVG by title.

    Args:
        prefix: with which the ids in them begin, another one for each set of a page.
    """
    drawn: dict[str, Figure | None] = {}
    with matplotlib.rc_context(_STYLE):
        for metric, name in ((LOSS, "Training loss"), (ACCURACY, "Test accuracy")):
            for axis, label in _AXES.items():
                drawn[f"{name} over {label}"] = _curves(methods, curves, metric, axis)
        drawn["Final accuracy of each seed"] = _seeds(methods)
        drawn["Validation accuracy over the rate, with 95 % intervals"] = _rates(methods, rates)
        drawn["Share of seeds that reached the target"] = _target(methods)
        if not simulated:
            drawn["Accuracy against time"] = _frontier(methods)
            drawn["Throughput, mean ± standard deviation"] = _bars(methods)
        return {
            title: _svg(figure, f"{prefix}-{place}") for place, (title, figure) in enumerate(drawn.items()) if figure
        }


def has_curves(drawn: Mapping[str, str]) -> bool:
    """Whether some of these plots have lines that can be smoothed."""
    return any(f"-{_CURVE}" in svg for svg in drawn.values())


def _figure(rows: int = 0) -> tuple[Figure, Axes]:
    """A figure, high enough for a row for each method."""
    figure = Figure(figsize=(4.6, max(3.0, 0.8 + 0.24 * rows)), layout="constrained")
    FigureCanvasSVG(figure)
    return figure, figure.add_subplot()


def _curves(methods: Sequence[MethodRuns], curves: Curves, metric: str, axis: str) -> Figure | None:
    """A line for each seed."""
    figure, axes = _figure()
    for place, method in enumerate(methods):
        for curve in curves.get(method, {}).get(metric, ()):
            if axis in curve.at:
                style = Style(place).line(len(curve.values))
                name = f"{_CURVE}{len(axes.lines)}"
                axes.plot(curve.at[axis], curve.values, markersize=3, linewidth=1.3, alpha=0.75, gid=name, **style)
    if not axes.lines:
        return None
    axes.set_xlabel(_AXES[axis])
    axes.set_ylabel("training loss" if metric == LOSS else "test accuracy")
    axes.xaxis.set_major_locator(MaxNLocator(5))
    axes.xaxis.set_major_formatter(_NUMBER)
    if metric == LOSS and min(line.get_ydata().min() for line in axes.lines) > 0:  # type: ignore[union-attr]
        axes.set_yscale("log")
        axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        axes.yaxis.set_major_formatter(StrMethodFormatter("{x:g}"))
        axes.yaxis.set_minor_formatter(NullFormatter())
    if metric == ACCURACY:
        _percent(axes.yaxis)
    return figure


def _seeds(methods: Sequence[MethodRuns]) -> Figure | None:
    """A point for each seed, a bar at the mean."""
    figure, axes = _figure(len(methods))
    for place, method in enumerate(methods):
        found, style = np.array(list(values(method, FINAL).values())), Style(place)
        if len(found):
            offsets = np.linspace(-0.16, 0.16, len(found)) if len(found) > 1 else np.zeros(1)
            axes.plot(found, place + offsets, style.marker, color=style.colour, alpha=0.8, markersize=5)
            axes.vlines(found.mean(), place - 0.28, place + 0.28, color=style.colour, linewidth=2)
    if not axes.lines:
        return None
    _places(axes, methods)
    axes.set_xlabel("final accuracy")
    _percent(axes.xaxis)
    return figure


def _rates(methods: Sequence[MethodRuns], rates: Sequence[RateCurve]) -> Figure | None:
    """A line through the means and a band around it; a rate at which most runs fail is a gap."""
    if not rates:
        return None
    figure, axes = _figure()
    for curve in rates:
        style, points = Style(list(methods).index(curve.method)), curve.points
        at, mean, low, high = np.array([(one.rate, one.mean, one.low, one.high) for one in points], dtype=np.float64).T
        axes.plot(at, mean, linewidth=1.3, markersize=4, **style.line(len(at)))
        axes.fill_between(at, low, high, color=style.colour, alpha=0.15, linewidth=0)
    axes.set_xscale("log", base=2)
    axes.minorticks_off()
    tried = sorted({point.rate for curve in rates for point in curve.points})
    axes.set_xticks(tried, [f"{rate:g}" for rate in tried])
    axes.set_xlabel("learning rate")
    axes.set_ylabel("validation accuracy")
    _percent(axes.yaxis)
    return figure


def _target(methods: Sequence[MethodRuns]) -> Figure | None:
    """Kaplan and Meier's steps over samples; a line ends where its runs do."""
    figure, axes = _figure()
    for place, method in enumerate(methods):
        found = times(method, TARGET_SAMPLES)
        if found and np.isfinite(found.at).all():
            at, share = found.curve()
            style = {**Style(place).line(len(at) + 1), "marker": None}
            axes.step([0, *at], [0, *share], where="post", linewidth=1.6, **style)
    if not axes.lines:
        return None
    _shares_over(axes, _AXES[SAMPLES], "reached the target")
    return figure


def _frontier(methods: Sequence[MethodRuns]) -> Figure | None:
    """Means of accuracy and seconds with both spreads; a line joins the methods that no other one beats in both."""
    figure, axes = _figure()
    means = []
    for place, method in enumerate(methods):
        seconds, accuracy = (np.array(list(values(method, m).values())) for m in (TRAIN_SECONDS, FINAL))
        if len(seconds) and len(accuracy):
            means.append((seconds.mean(), accuracy.mean()))
            bars = {"xerr": seconds.std(ddof=1), "yerr": accuracy.std(ddof=1)} if len(method.trained) > 1 else {}
            style = Style(place)
            axes.errorbar(*means[-1], **bars, fmt=style.marker, color=style.colour, capsize=3, markersize=6)
    if not means:
        return None
    best = [one for one in sorted(means) if not any(o[0] <= one[0] and o[1] >= one[1] and o != one for o in means)]
    axes.plot(*zip(*best, strict=True), color=_INK, linewidth=1, linestyle="--", alpha=0.5, zorder=1)
    _shares_over(axes, _AXES[SECONDS], "final accuracy")
    return figure


def _bars(methods: Sequence[MethodRuns]) -> Figure | None:
    figure, axes = _figure(len(methods))
    for place, method in enumerate(methods):
        found = np.array(list(values(method, THROUGHPUT).values()))
        if len(found):
            error = found.std(ddof=1) if len(found) > 1 else None
            axes.barh(place, found.mean(), xerr=error, color=Style(place).colour, capsize=4, ecolor=_INK, height=0.6)
    if not axes.patches:
        return None
    _places(axes, methods)
    axes.set_xlabel("samples/s")
    axes.xaxis.set_major_locator(MaxNLocator(5))
    axes.xaxis.set_major_formatter(_NUMBER)
    return figure


def _places(axes: Axes, methods: Sequence[MethodRuns]) -> None:
    """Numbers beside the rows, as in the page's legend: names of methods are too long to stand there."""
    axes.set_yticks(range(len(methods)), [str(place + 1) for place in range(len(methods))])
    axes.set_ylim(len(methods) - 0.4, -0.6)
    axes.set_ylabel("method")
    axes.grid(visible=False, axis="y")


def _shares_over(axes: Axes, across: str, upwards: str) -> None:
    """Names the axes of shares over numbers."""
    axes.set_xlabel(across)
    axes.set_ylabel(upwards)
    axes.xaxis.set_major_locator(MaxNLocator(5))
    axes.xaxis.set_major_formatter(_NUMBER)
    _percent(axes.yaxis)


def _percent(axis: Any) -> None:
    axis.set_major_locator(MaxNLocator(6))
    axis.set_major_formatter(PERCENT)


def _svg(figure: Figure, prefix: str) -> str:
    """The figure as an element whose ids are its own, so that several stand in one page."""
    text = io.StringIO()
    (axes,) = figure.axes
    with matplotlib.rc_context({"svg.hashsalt": prefix}):
        figure.savefig(text, format="svg", transparent=True, metadata={"Date": None, "Creator": None})
    svg = text.getvalue()
    svg = svg[svg.index("<svg") :]
    svg = re.sub(r"<metadata>.*?</metadata>", "", svg, flags=re.S)
    svg = re.sub(r' id="', f' id="{prefix}-', svg)
    svg = re.sub(r'(xlink:href="#|url\(#)', rf"\g<1>{prefix}-", svg)
    svg = re.sub(r'<svg ([^>]*?)width="[^"]*"', r"<svg \1", svg, count=1)
    svg = re.sub(r'<svg ([^>]*?)height="[^"]*"', r"<svg \1", svg, count=1)
    if axes.get_yscale() == "log":  # the height of a factor of e, in the figure's points: 72 of an inch
        low, high = axes.get_ylim()
        efold = 72 * figure.get_figheight() * axes.get_position().height / math.log(high / low)
        svg = svg.replace("<svg ", f'<svg data-efold="{efold:.6g}" ', 1)
    return svg.replace(_INK, "currentColor").replace(_GRID, "var(--grid)")
