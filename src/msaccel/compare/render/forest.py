"""A forest plot: a row for each comparison, its estimate and interval on one linear axis with a line at no effect.

The page draws it from places in percent of the axis, so names and numbers beside the rows are text that wraps.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from matplotlib.ticker import MaxNLocator

from msaccel.compare.measures import FINAL, THROUGHPUT, Measure
from msaccel.compare.render import format
from msaccel.compare.statistics import Estimate
from msaccel.compare.verdicts import DOWN, UP, Comparison, Verdict

_TITLES = {
    FINAL: "Final accuracy minus the baseline’s, in points",
    THROUGHPUT: "Samples/s over the baseline’s, as a ratio",
}
_TICKS = 5
_LEAST = 0.001  # to each side: an axis has a length also where nothing differs


@dataclass(frozen=True)
class Row:
    """One comparison; places are percent of the axis.

    Attributes:
        interval: where it begins and how long it is; None where there is none.
        kind: `up`, `down` or neither, after the verdict.
    """

    comparison: Comparison
    at: float
    interval: tuple[float, float] | None
    estimate: str
    verdict: str
    kind: str


@dataclass(frozen=True)
class Forest:
    """The rows of one measure on one axis.

    Attributes:
        ticks: places and labels.
        nothing: the place of no effect.
    """

    title: str
    rows: list[Row]
    ticks: list[tuple[float, str]]
    nothing: float


def forests(comparisons: Sequence[Comparison]) -> list[Forest]:
    """A forest for each measure that decides a verdict, where some comparison has an estimate."""
    drawn = []
    for measure, title in _TITLES.items():
        known = [(one, one.estimates[measure.name]) for one in comparisons if measure.name in one.estimates]
        if known:
            drawn.append(_forest(measure, title, known))
    return drawn


def _forest(measure: Measure, title: str, known: Sequence[tuple[Comparison, Estimate]]) -> Forest:
    nothing = known[0][1].nothing
    ends = [nothing - _LEAST, nothing + _LEAST]
    for _, estimate in known:
        ends += [end for end in (estimate.value, estimate.low, estimate.high) if end is not None]
    ticks = [float(tick) for tick in MaxNLocator(_TICKS).tick_values(min(ends), max(ends))]
    low, span = ticks[0], ticks[-1] - ticks[0]

    def place(value: float) -> float:
        return 100 * (value - low) / span

    rows = []
    for comparison, estimate in known:
        bounded = estimate.low is not None and estimate.high is not None
        begin, end = place(estimate.low or 0.0), place(estimate.high or 0.0)
        verdict = comparison.verdicts[measure.question or ""]
        interval = (begin, end - begin) if bounded else None
        at, shown = place(estimate.value), format.estimate(estimate)
        rows.append(Row(comparison, at, interval, shown, format.verdict(verdict), _kind(verdict)))
    label = "{:g}" if known[0][1].is_ratio else "{:+g}"
    scale = 1 if known[0][1].is_ratio else 100
    named = [(place(tick), label.format(round(scale * tick, 10)) if tick else "0") for tick in ticks]
    return Forest(title, rows, named, place(nothing))


def _kind(verdict: Verdict) -> str:
    return "up" if verdict.words in UP.values() else "down" if verdict.words in DOWN.values() else ""
