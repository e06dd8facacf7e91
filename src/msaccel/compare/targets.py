"""Time to a target accuracy, in samples, updates and seconds; runs that miss it are censored, never left out.

A mean over the runs that reached the target is a mean over the lucky ones. So every seed counts: one that misses the
target within its budget, or diverges, is known to take longer than the budget. Such times are summarised by the curve
of Kaplan and Meier (1958), its median, the log-rank test, and restricted means (Royston and Parmar 2013): the mean time
spent until the target or the limit, whichever comes first. The limit of a pair is the smaller budget of its sides.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from operator import attrgetter
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.stats import CensoredData, ecdf, permutation_test

from msaccel.compare.baselines import BaselinePair
from msaccel.compare.fairness import other_machines
from msaccel.compare.method_runs import MethodRuns
from msaccel.compare.runs import Record
from msaccel.compare.statistics import MIN_RUNS, Estimate, holm, ratio_of_means

TARGET, STOPS = "train.target_accuracy", "train.stop_at_target"
_RESAMPLES = 4999  # random divisions of the seeds; with up to seven on each side all are tried

_HALF = 0.5 - 1e-9  # a product of shares may end up just below one half
Array = NDArray[Any]


@dataclass(frozen=True)
class TargetMeasure:
    """A way to measure the time to the target.

    Attributes:
        name: in JSON and CSV.
        heading: in tables.
        reached: when a run reached the target; None if it did not.
        budget: the time by which a run had to reach it.
        timed: whether it is a time, which means nothing where ranks are simulated.
        used: whether the budget is what a run has used, which is less where it stopped at the target.
    """

    name: str
    heading: str
    reached: Callable[[Record], float | None]
    budget: Callable[[Record], float | None]
    timed: bool = False
    used: bool = True


SAMPLES = TargetMeasure(
    "samples_to_target",
    "samples to target",
    lambda run: run.metrics.get("samples/to_target"),
    attrgetter("samples"),
)
UPDATES = TargetMeasure(
    "updates_to_target", "updates to target", attrgetter("target_update"), attrgetter("updates"), used=False
)
SECONDS = TargetMeasure(
    "seconds_to_target",
    "seconds to target",
    lambda run: run.metrics.get("time/to_target_s"),
    lambda run: run.metrics.get("time/train_s"),
    timed=True,
)
MEASURES = (SAMPLES, UPDATES, SECONDS)


@dataclass(frozen=True, eq=False)
class TargetTimes:
    """The times of a method's seeds.

    Attributes:
        seeds: in rising order; the other two have the same order.
        at: when each seed reached the target, or for how long it was watched without reaching it.
        reached: whether it reached the target.
    """

    seeds: list[int]
    at: Array
    reached: Array

    @property
    def limit(self) -> float:
        """The time for which every run was watched: until the first run was given up."""
        return float(self.at[~self.reached].min(initial=math.inf))

    def within(self, limit: float) -> TargetTimes:
        """The same times as if every run had been given up at the limit."""
        return TargetTimes(self.seeds, np.minimum(self.at, limit), self.reached & (self.at <= limit))

    def curve(self) -> tuple[Array, Array]:
        """Kaplan and Meier's estimate: times, and the share of seeds that has reached the target by each.

        The time of a run that diverged is the largest number where its budget is not known.
        """
        at = np.minimum(self.at, np.finfo(np.float64).max)
        found = ecdf(CensoredData.right_censored(at, ~self.reached)).cdf
        return found.quantiles, found.probabilities

    @property
    def median(self) -> float | None:
        """The time by which half of the seeds have reached it; None if fewer do."""
        times, shares = self.curve()
        return next((float(time) for time, share in zip(times, shares, strict=True) if share >= _HALF), None)


@dataclass(frozen=True)
class TargetEstimate:
    """A method against its baseline.

    Attributes:
        limit: the time to which the means are restricted; None if every run reached the target.
        means: the restricted means of the method and of the baseline.
        reached: how many seeds of each reached the target within the limit.
        ratio: of the restricted means; its p is that of the log-rank test.
        p_adjusted: after Holm's correction over the report.
    """

    limit: float | None
    means: tuple[float, float]
    reached: tuple[int, int]
    ratio: Estimate
    p_adjusted: float | None = None


def has_target(method: MethodRuns) -> bool:
    """Whether its runs had a target, and accuracies to reach it."""
    return method.number(TARGET) is not None and method.least is not None


def times(method: MethodRuns, measure: TargetMeasure, other: MethodRuns | None = None) -> TargetTimes | None:
    """When the seeds reached the target; None where that is not known of each, as seconds of simulated ranks.

    Args:
        other: gives the budget of a run that diverged if no run of the method used its own.
    """
    if not has_target(method) or (measure.timed and any(run.simulated for run in method.ended)):
        return None

    def whole(runs: Sequence[Record]) -> list[float]:
        used = [run for run in runs if not (measure.used and _stopped(run))]
        return [budget for run in used if (budget := measure.budget(run))]

    never = max(whole(method.runs) or whole(other.runs if other else ()), default=math.inf)  # for one that diverged
    at, reached = [], []
    for run in method.ended:
        reached.append(run.target_update is not None)
        known = measure.reached(run) if reached[-1] else measure.budget(run) if run in method.runs else never
        if not known or known < 0:
            return None
        at.append(known)
    return TargetTimes(
        [run.seed for run in method.ended], np.array(at, dtype=np.float64), np.array(reached, dtype=bool)
    )


def _stopped(run: Record) -> bool:
    """Whether it ended at the target, before its budget."""
    return run.target_update is not None and run.params.get(STOPS, "").lower() == "true"


def compare_times(pair: BaselinePair) -> dict[str, TargetEstimate]:
    """The estimates of a pair by the measure's name; no times where its machines differ."""
    found = {}
    on_others = other_machines(pair)
    for measure in MEASURES:
        if measure.timed and on_others:
            continue
        method, baseline = times(pair.method, measure, pair.baseline), times(pair.baseline, measure, pair.method)
        if method and baseline and (one := estimate(method, baseline)):
            found[measure.name] = one
    return found


def estimate(method: TargetTimes, baseline: TargetTimes) -> TargetEstimate | None:
    """Compares the times of a pair; None if no seed of either side reached the target, or the budget is unknown."""
    limit = min(method.limit, baseline.limit)
    sides = [side.within(limit) for side in (method, baseline)]
    if not any(side.reached.any() for side in sides) or not all(np.isfinite(side.at).all() for side in sides):
        return None
    ratio = ratio_of_means(*(side.at for side in sides))
    if min(ratio.n) >= MIN_RUNS:
        ratio = replace(ratio, p=log_rank(*sides))
    means, reached = [float(side.at.mean()) for side in sides], [int(side.reached.sum()) for side in sides]
    return TargetEstimate(None if math.isinf(limit) else limit, (means[0], means[1]), (reached[0], reached[1]), ratio)


def log_rank(method: TargetTimes, baseline: TargetTimes) -> float:
    """The p of the log-rank test, by permutation (Mantel 1966, Peto and Peto 1972).

    The statistic is the method's observed minus expected number of events, which is the sum of its seeds' scores.
    Trying all divisions of the seeds into two such sides is exact; the normal approximation is not, and gives up to 7 %
    of false alarms with five seeds on each side.
    """
    at, reached = (np.concatenate(both) for both in ((method.at, baseline.at), (method.reached, baseline.reached)))
    scored = scores(at, reached)
    parts = scored[: len(method.at)], scored[len(method.at) :]
    found = permutation_test(parts, _total, vectorized=True, n_resamples=_RESAMPLES, rng=np.random.default_rng(0))
    return float(found.pvalue)


def scores(at: Array, reached: Array) -> Array:
    """For each seed: one if it reached the target, minus the hazard that it has passed through (Nelson and Aalen)."""
    at_risk = (at[:, None] >= at[None, :]).sum(axis=0)
    passed = (at[None, :] <= at[:, None]) & reached[None, :]
    found: Array = reached - (passed / at_risk[None, :]).sum(axis=1)
    return found


def _total(method: Array, baseline: Array, axis: int) -> Array:
    total: Array = method.sum(axis=axis)
    return total


def adjust(every: Iterable[dict[str, TargetEstimate]]) -> None:
    """Puts Holm's adjusted p into the estimates of a report, for each measure by itself."""
    found = list(every)
    for measure in MEASURES:
        having = [one for one in found if measure.name in one]
        for one, p in zip(having, holm([one[measure.name].ratio.p for one in having]), strict=True):
            one[measure.name] = replace(one[measure.name], p_adjusted=p)
