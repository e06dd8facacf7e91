"""How sensitive a method is to its rate: accuracy over the rates that were tried, and the width of the good ones.

The width is log2 of the highest over the lowest rate whose mean validation accuracy is within half a point of the
best one's: 1 is a factor of two. Its interval is a bootstrap over whole seeds. If the best rate or a good one is the
first or last that was tried, the curve is open at that end, and the width is a lower bound.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from msaccel.compare.groups import ComparisonSet
from msaccel.compare.method_runs import MethodRuns
from msaccel.compare.statistics import LEVEL, MIN_RUNS, half_width
from msaccel.compare.tuning import RESAMPLES, Table, families, scores, trains, validations

GOOD = 0.005  # from the best validation accuracy


@dataclass(frozen=True)
class RatePoint:
    """One rate.

    Attributes:
        mean: validation accuracy of the runs that train; None where most do not.
        low, high: its 95 % interval (Student); None likewise, and where fewer than three train.
    """

    rate: float
    mean: float | None
    low: float | None = None
    high: float | None = None


@dataclass(frozen=True, eq=False)
class RateCurve:
    """The rates of one method.

    Attributes:
        method: the runs at the chosen rate.
        points: in rising order of rates.
        width: in doublings.
        interval: 95 % interval of the width; None with fewer than three seeds.
        open: the ends at which the grid may be too short: `below`, `above`, both or neither.
    """

    method: MethodRuns
    points: list[RatePoint]
    width: float
    interval: tuple[float, float] | None
    open: tuple[str, ...]


def rate_curves(every: ComparisonSet, chosen: ComparisonSet, key: str) -> list[RateCurve]:
    """A curve for each method that trains and finished at several rates, all of which are numbers above 0.

    Args:
        every: all trials.
        chosen: what `msaccel.compare.tuning.tune` made of them.
    """
    found = []
    for family in families(every, key):
        rates, ended = [one.number(key) or 0.0 for one in family], [one for one in family if one.runs]
        if len(ended) > 1 and min(rates) > 0:
            (method,) = (method for method in chosen.methods if method in ended)
            if method.least is None or method.trained:
                columns = [place for place, one in enumerate(family) if one.runs]
                found.append(_curve(method, ended, columns, rates, key))
    return found


def _curve(method: MethodRuns, ended: list[MethodRuns], columns: list[int], rates: list[float], key: str) -> RateCurve:
    """The curve of a method, of whose `rates` those in the `columns` have `ended` runs."""
    trials = validations(ended, key)
    seeds = len(trials)

    def means(weights: NDArray[np.int64]) -> Table:
        found = np.full((len(weights), len(rates)), -1.0)  # also of the rates at which every run failed
        found[:, columns] = scores(weights, trials)
        return found

    of_all = means(np.ones((1, seeds), np.int64))
    ((first, last),), doublings = _good_range(of_all), np.log2(rates)
    interval = None
    if min(one.attempts for one in ended) >= MIN_RUNS:
        weights = np.random.default_rng(0).multinomial(seeds, [1 / seeds] * seeds, RESAMPLES)
        ends = doublings[_good_range(means(weights))]
        low, high = np.quantile(ends[:, 1] - ends[:, 0], [LEVEL / 2, 1 - LEVEL / 2])
        interval = float(low), float(high)
    counted = trains(trials)
    known = {column: trials[counted[:, place], place] for place, column in enumerate(columns)}
    is_open = {"below": first == 0, "above": last == len(rates) - 1}
    return RateCurve(
        method,
        [_point(rate, of_all[0, place], known.get(place)) for place, rate in enumerate(rates)],
        float(doublings[last] - doublings[first]),
        interval,
        tuple(end for end, found in is_open.items() if found),
    )


def _good_range(means: Table) -> NDArray[np.int64]:
    """The positions of the first and the last good rate in each sample, with the best rate between them."""
    good = means >= means.max(axis=1, keepdims=True) - GOOD
    return np.stack([good.argmax(axis=1), good.shape[1] - 1 - good[:, ::-1].argmax(axis=1)], axis=1)


def _point(rate: float, mean: float, trained: Table | None) -> RatePoint:
    if mean < 0 or trained is None:
        return RatePoint(rate, None)
    if len(trained) < MIN_RUNS:
        return RatePoint(rate, float(mean))
    half = float(half_width(trained))
    return RatePoint(rate, float(mean), float(mean) - half, float(mean) + half)
