"""The table of rates: how far a method's rate may be from its best one and still lose at most half a point."""

from __future__ import annotations

from msaccel.compare.rate_curves import RateCurve
from msaccel.compare.report import Section
from msaccel.compare.tuning import RATE

RATE_NOTE = (
    "Width: log2 of the highest over the lowest rate within half a point of the best validation accuracy, with a 95 % "
    "interval (bootstrap over seeds); open where the rates that were tried end before it does."
)


def rate_rows(section: Section) -> list[list[str]]:
    """Headings, and a row for each method; none where no rate was chosen."""
    if not section.rates:
        return []
    heads = ["method", "rates", "best", "width"]
    return [heads, *([one.method.label, _tried(one), one.method.param(RATE), width(one)] for one in section.rates)]


def width(curve: RateCurve) -> str:
    """`2.3 [1.0, 3.3]`, or `at least 2.3 [1.0, 3.3], open above`."""
    interval = f" [{curve.interval[0]:.1f}, {curve.interval[1]:.1f}]" if curve.interval else ""
    found = f"{curve.width:.1f}{interval}"
    return f"at least {found}, open {' and '.join(curve.open)}" if curve.open else found


def _tried(curve: RateCurve) -> str:
    return " ".join(f"{point.rate:g}" for point in curve.points)
