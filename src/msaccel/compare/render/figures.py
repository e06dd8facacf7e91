"""Figures of a page as inline SVG with its colours, light or dark, and its fonts; and how methods are told apart."""

from __future__ import annotations

import io
import math
import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import matplotlib
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, MaxNLocator, StrMethodFormatter

from msaccel.tracking.ui_view import COLOURS

# From the seventh method on colours repeat with other dashes (line, gap, …) and markers: 168 methods are told apart.
_DASHES = ((), (5, 2), (1, 1.5), (6, 2, 1, 2))
_MARKERS = {"o": "●", "s": "■", "^": "▲", "D": "◆", "v": "▼", "P": "✚", "X": "✖"}
# Labels of ticks state the whole number that they stand for.
PERCENT = FuncFormatter(lambda value, _: f"{100 * value:.10g}%")
NUMBER = StrMethodFormatter("{x:,.10g}")
INK, _GRID = "#010203", "#040506"  # placeholders for the page's own
LOOK: Any = {
    "svg.fonttype": "none",
    "font.family": "sans-serif",
    "font.size": 10,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.color": _GRID,
    "axes.axisbelow": True,
    **dict.fromkeys(("text.color", "axes.labelcolor", "xtick.color", "ytick.color", "axes.titlecolor"), INK),
    "axes.edgecolor": INK,
    "path.simplify": False,  # smoothing.js averages over all points
}
_FEW = 20
_MOST_LABELS = 6


@dataclass(frozen=True)
class Style:
    """What distinguishes the method at a position in its set: colour, dashes and marker."""

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
        """How matplotlib draws a curve; with markers if it has few points or its colour is used again."""
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


def new_figure(rows: int = 0) -> tuple[Figure, Axes]:
    """A figure, high enough for so many rows."""
    figure = Figure(figsize=(4.6, max(3.0, 0.8 + 0.24 * rows)), layout="constrained")
    return figure, figure.add_subplot()


def shares_over(axes: Axes, across: str, upwards: str) -> None:
    """Names the axes of shares over numbers."""
    axes.set_xlabel(across)
    axes.set_ylabel(upwards)
    axes.xaxis.set_major_locator(MaxNLocator(5))
    axes.xaxis.set_major_formatter(NUMBER)
    percent(axes.yaxis)


def rate_axis(axes: Axes, tried: Iterable[float]) -> None:
    """A logarithmic axis with a tick at each rate; of many, every other one has a label."""
    rates = sorted({*tried})
    labelled = rates[:: 1 if len(rates) <= _MOST_LABELS else 2]
    axes.set_xscale("log", base=2)
    axes.minorticks_off()
    axes.set_xticks(rates, [f"{rate:g}" if rate in labelled else "" for rate in rates])
    axes.set_xlabel("learning rate")


def percent(axis: Any) -> None:
    """Ticks at whole shares."""
    axis.set_major_locator(MaxNLocator(6))
    axis.set_major_formatter(PERCENT)


def as_svg(figure: Figure, prefix: str) -> str:
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
    return svg.replace(INK, "currentColor").replace(_GRID, "var(--grid)")
