"""A forest plot: a row for each comparison, its estimate and interval on one linear axis with a line at no effect.

The page draws it from positions in percent of the axis, so names and numbers beside the rows are text that wraps.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from matplotlib.ticker import MaxNLocator

from msaccel.compare.measures import FINAL, SPEED, SUCCESS, THROUGHPUT, Measure
from msaccel.compare.render import format
from msaccel.compare.verdicts import Comparison

_TITLES = {
    FINAL: "Final accuracy minus the baseline’s, in points",
    THROUGHPUT: "Samples/s over the baseline’s, as a ratio",
}
_TICKS = 5
_LEAST = 0.1  # half-width of an axis, in its unit, so that it has a length even if nothing differs


@dataclass(frozen=True)
class Entry:
    """What a row shows, in the unit of the axis.

    Attributes:
        against: what the method is compared with, in words that follow its name.
        interval: None where there is none.
        kind: a class of the style: `up`, `down`, `same` or none.
        attributes: of the row's element.
    """

    name: str
    against: str
    value: float
    interval: tuple[float, float] | None
    estimate: str
    verdict: str
    kind: str
    attributes: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Row:
    """An entry with places in percent of the axis.

    Attributes:
        interval: where it begins and how long it is.
        beyond: whether the estimate is beyond the axis: `below`, `above` or neither.
    """

    entry: Entry
    at: float
    interval: tuple[float, float] | None
    beyond: str


@dataclass(frozen=True)
class Forest:
    """Rows on one axis.

    Attributes:
        ticks: places and labels.
        nothing: the place of no effect.
        margin: where the band of differences that do not matter begins, and how long it is; None: there is none.
    """

    title: str
    rows: list[Row]
    ticks: list[tuple[float, str]]
    nothing: float
    margin: tuple[float, float] | None


def forests(comparisons: Sequence[Comparison]) -> list[Forest]:
    """A forest for each measure that decides a verdict, where some comparison has an estimate."""
    drawn = []
    for measure, title in _TITLES.items():
        if entries := [_entry(measure, one) for one in comparisons if measure.name in one.estimates]:
            ratio = measure is THROUGHPUT
            drawn.append(forest(title, entries, 1.0 if ratio else 0.0, "{:g}" if ratio else "{:+g}"))
    return drawn


def _entry(measure: Measure, one: Comparison) -> Entry:
    estimate, decision = one.estimates[measure.name], one.accuracy if measure is FINAL else one.verdicts[SPEED]
    scale = 1 if estimate.is_ratio else 100
    interval = None
    if estimate.low is not None and estimate.high is not None:
        interval = scale * estimate.low, scale * estimate.high
    names = one.pair.method.label, f"against {one.pair.baseline.accel}: {one.pair.name}"
    shown = format.estimate(estimate), format.verdict(decision)
    of_shares = decision is one.verdicts.get(SUCCESS)  # says nothing about the place of the dot
    return Entry(*names, scale * estimate.value, interval, *shown, "" if of_shares else decision.verdict.kind)


def forest(
    title: str,
    entries: Sequence[Entry],
    nothing: float,
    label: str,
    most: float = math.inf,
    margin: tuple[float, float] | None = None,
) -> Forest:
    """The entries on one axis.

    Args:
        nothing: no effect.
        label: the format of a tick.
        most: how far the axis may reach to each side; what lies beyond is cut off there.
        margin: the band of differences that do not matter.
    """
    shown = [end for one in entries for end in (one.value, *(one.interval or ()))]
    shown += [nothing - _LEAST, nothing + _LEAST, *(margin or ())]
    low, high = (min(max(end, nothing - most), nothing + most) for end in (min(shown), max(shown)))
    ticks = [float(tick) for tick in MaxNLocator(_TICKS).tick_values(low, high)]
    first, last = ticks[0], ticks[-1]
    rounding = 1e-9 * (last - first)

    def place(value: float) -> float:
        return 100 * (min(max(value, first), last) - first) / (last - first)

    def span(ends: tuple[float, float]) -> tuple[float, float]:
        return place(ends[0]), place(ends[1]) - place(ends[0])

    rows = [
        Row(
            one,
            place(one.value),
            span(one.interval) if one.interval else None,
            "below" if one.value < first - rounding else "above" if one.value > last + rounding else "",
        )
        for one in entries
    ]
    named = [(place(tick), label.format(round(tick, 10)) if tick else "0") for tick in ticks]
    return Forest(title, rows, named, place(nothing), span(margin) if margin else None)
