"""The plots of a report: curves, seeds, rates, times to the target and throughput."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, MaxNLocator, NullFormatter, StrMethodFormatter

from msaccel.compare.measures import FINAL, THROUGHPUT, values
from msaccel.compare.measures import SECONDS as TRAIN_SECONDS
from msaccel.compare.method_runs import MethodRuns
from msaccel.compare.rate_curves import RateCurve
from msaccel.compare.render.curves import ACCURACY, LOSS, SAMPLES, SECONDS, UPDATES, Curve
from msaccel.compare.render.figures import INK, LOOK, NUMBER, Style, as_svg, new_figure, percent, rate_axis, shares_over
from msaccel.compare.targets import SAMPLES as TARGET_SAMPLES
from msaccel.compare.targets import times

_CURVE = "curve"  # prefix of the ids of lines that smoothing.js looks for
_AXES = {UPDATES: "updates", SAMPLES: "training samples", SECONDS: "seconds of training"}

Curves = Mapping[MethodRuns, Mapping[str, Sequence[Curve]]]


def draw(methods: Sequence[MethodRuns], curves: Curves, rates: Sequence[RateCurve], prefix: str) -> dict[str, str]:
    """Every plot that the runs allow, as SVG by title.

    Args:
        prefix: of the ids in the plots; different for each set of a page.
    """
    drawn: dict[str, Figure | None] = {}
    styles = {curve: Style(list(methods).index(curve.method)) for curve in rates}
    with matplotlib.rc_context(LOOK):
        for metric, name in ((LOSS, "Training loss"), (ACCURACY, "Test accuracy")):
            for axis, label in _AXES.items():
                drawn[f"{name} over {label}"] = _curves(methods, curves, metric, axis)
        drawn["Final accuracy of each seed"] = _seeds(methods)
        drawn["Validation accuracy over the rate, with 95 % intervals"] = over_rates(styles)
        drawn["Share of seeds that reached the target"] = _target(methods)
        drawn["Accuracy against time"] = _frontier(methods)
        drawn["Throughput, mean ± standard deviation"] = _bars(methods)
        return {
            title: as_svg(figure, f"{prefix}-{place}") for place, (title, figure) in enumerate(drawn.items()) if figure
        }


def has_curves(drawn: Mapping[str, str]) -> bool:
    """Whether some of these plots have lines that can be smoothed."""
    return any(f"-{_CURVE}" in svg for svg in drawn.values())


def _curves(methods: Sequence[MethodRuns], curves: Curves, metric: str, axis: str) -> Figure | None:
    """A line for each seed."""
    figure, axes = new_figure()
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
    axes.xaxis.set_major_formatter(NUMBER)
    if metric == LOSS and min(line.get_ydata().min() for line in axes.lines) > 0:  # type: ignore[union-attr]
        axes.set_yscale("log")
        axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        axes.yaxis.set_major_formatter(StrMethodFormatter("{x:g}"))
        axes.yaxis.set_minor_formatter(NullFormatter())
    if metric == ACCURACY:
        percent(axes.yaxis)
    return figure


def _seeds(methods: Sequence[MethodRuns]) -> Figure | None:
    """A point for each seed, a bar at the mean."""
    figure, axes = new_figure(len(methods))
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
    percent(axes.xaxis)
    return figure


def over_rates(curves: Mapping[RateCurve, Style]) -> Figure | None:
    """A line through the means and a band around it; a rate at which most runs fail is a gap."""
    if not curves:
        return None
    figure, axes = new_figure()
    for curve, style in curves.items():
        points = curve.points
        at, mean, low, high = np.array([(one.rate, one.mean, one.low, one.high) for one in points], dtype=np.float64).T
        axes.plot(at, mean, linewidth=1.3, markersize=4, **style.line(len(at)))
        axes.fill_between(at, low, high, color=style.colour, alpha=0.15, linewidth=0)
    rate_axis(axes, (point.rate for curve in curves for point in curve.points))
    axes.set_ylabel("validation accuracy")
    percent(axes.yaxis)
    return figure


def _target(methods: Sequence[MethodRuns]) -> Figure | None:
    """Kaplan and Meier's steps over samples; a line ends where its runs do."""
    figure, axes = new_figure()
    for place, method in enumerate(methods):
        found = times(method, TARGET_SAMPLES)
        if found and np.isfinite(found.at).all():
            at, share = found.curve()
            style = {**Style(place).line(len(at) + 1), "marker": None}
            axes.step([0, *at], [0, *share], where="post", linewidth=1.6, **style)
    if not axes.lines:
        return None
    shares_over(axes, _AXES[SAMPLES], "reached the target")
    return figure


def _frontier(methods: Sequence[MethodRuns]) -> Figure | None:
    """Means of accuracy and seconds with both spreads; a line joins the methods that no other one beats in both."""
    figure, axes = new_figure()
    means = []
    for place, method in enumerate(methods):
        seconds, accuracy = (np.array(list(values(method, m).values())) for m in (TRAIN_SECONDS, FINAL))
        if len(seconds) and len(accuracy):
            means.append((seconds.mean(), accuracy.mean()))
            several = min(len(seconds), len(accuracy)) > 1
            bars = {"xerr": seconds.std(ddof=1), "yerr": accuracy.std(ddof=1)} if several else {}
            style = Style(place)
            axes.errorbar(*means[-1], **bars, fmt=style.marker, color=style.colour, capsize=3, markersize=6)
    if not means:
        return None
    best = [one for one in sorted(means) if not any(o[0] <= one[0] and o[1] >= one[1] and o != one for o in means)]
    axes.plot(*zip(*best, strict=True), color=INK, linewidth=1, linestyle="--", alpha=0.5, zorder=1)
    shares_over(axes, _AXES[SECONDS], "final accuracy")
    return figure


def _bars(methods: Sequence[MethodRuns]) -> Figure | None:
    figure, axes = new_figure(len(methods))
    for place, method in enumerate(methods):
        found = np.array(list(values(method, THROUGHPUT).values()))
        if len(found):
            error = found.std(ddof=1) if len(found) > 1 else None
            axes.barh(place, found.mean(), xerr=error, color=Style(place).colour, capsize=4, ecolor=INK, height=0.6)
    if not axes.patches:
        return None
    _places(axes, methods)
    axes.set_xlabel("samples/s")
    axes.xaxis.set_major_locator(MaxNLocator(5))
    axes.xaxis.set_major_formatter(NUMBER)
    return figure


def _places(axes: Axes, methods: Sequence[MethodRuns]) -> None:
    """Numbers the rows as in the page's legend: names of methods are too long for the axis."""
    axes.set_yticks(range(len(methods)), [str(place + 1) for place in range(len(methods))])
    axes.set_ylim(len(methods) - 0.4, -0.6)
    axes.set_ylabel("method")
    axes.grid(visible=False, axis="y")
