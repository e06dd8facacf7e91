"""One method against its baseline over several workloads, without a mean of accuracies over them.

Points of accuracy of two workloads measure different things, so they are never averaged. What can be averaged:

- The probability of improvement (Agarwal et al. 2021, "Deep RL at the edge of the statistical precipice"): that a run
  of the method ends above one of the baseline, averaged over the workloads. Only ranks enter, so a run that does not
  train counts, as the worst. Its interval comes from the errors of each workload's own probability (`superiority`): a
  bootstrap's of five runs is too narrow.
- The geometric mean of the ratios of speed.
- The performance profile (Dolan and Moré 2002): the share of workloads on which a side needs at most so many times the
  samples to the target that the better side needs.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from scipy.special import stdtrit

from msaccel.compare.groups import ComparisonSet
from msaccel.compare.measures import SPEED, THROUGHPUT
from msaccel.compare.method_runs import MethodRuns
from msaccel.compare.statistics import LEVEL, MIN_RUNS, Estimate
from msaccel.compare.superiority import probability
from msaccel.compare.targets import SAMPLES
from msaccel.compare.tuning import Choice
from msaccel.compare.verdicts import Comparison, Verdict

FACTORS = (1.0, 1.5, 2.0)  # of the performance profile
_OF_METHOD = ("accel", "loss_scale.")

Interval = tuple[float, float] | None


@dataclass(frozen=True)
class OverWorkloads:
    """One method against one of its baselines.

    Attributes:
        method, baseline: the accelerators with the settings that distinguish them, and the baseline's name.
        workloads: the titles of the sets.
        improvement: the probability, from 0 to 1; a half is no improvement.
        improvement_interval, speed_interval: 95 %; None with fewer than three runs on a side, without spread, or
            with a rate that was chosen on fewer than three seeds.
        speed: the geometric mean of the ratios; None where some workload has no fair one.
        profile: of the method and of the baseline, at FACTORS; None where some workload has no target.
    """

    method: str
    baseline: str
    workloads: list[str]
    improvement: float
    improvement_interval: Interval
    speed: float | None
    speed_interval: Interval
    profile: list[tuple[float, float]] | None


def over_workloads(
    sets: Sequence[tuple[str, ComparisonSet, Sequence[Comparison]]],
    paired: bool = False,
    tuned: Mapping[MethodRuns, Choice] | None = None,
) -> list[OverWorkloads]:
    """Every pair that several workloads have, except a pair that some workload has twice, which would count double.

    Args:
        sets: the title, the set and the comparisons of each.
        paired, tuned: as of `superiority.probability`.
    """
    places: dict[tuple[str, ...], list[tuple[str, str, Comparison]]] = defaultdict(list)
    for title, found, comparisons in sets:
        workload = repr((found.conditions["model"], found.conditions["data"]))
        for one in comparisons:
            if one.pair.method.least is not None:
                places[_identity(one)].append((workload, title, one))
    several = [found for found in places.values() if len(found) == len({workload for workload, _, _ in found}) > 1]
    return [_over([title for _, title, _ in found], [one for _, _, one in found], paired, tuned) for found in several]


def _identity(comparison: Comparison) -> tuple[str, ...]:
    """The baseline's name and the method's own settings, which are the same on every workload."""
    params = comparison.pair.method.known[-1].params
    own = sorted(f"{key}={value}" for key, value in params.items() if key.startswith(_OF_METHOD))
    return (comparison.pair.name, *own)


def _over(
    titles: list[str], comparisons: Sequence[Comparison], paired: bool, tuned: Mapping[MethodRuns, Choice] | None
) -> OverWorkloads:
    pair = comparisons[0].pair
    settings = [f"{key}={value}" for key, value in pair.method.settings.items() if value and key.startswith("accel.")]
    chances = [probability(one.pair, paired, tuned) for one in comparisons]
    runs = [(len(one.pair.method.final_accuracies), len(one.pair.baseline.final_accuracies)) for one in comparisons]
    errors = [with_freedom(of_one, n) for (_, of_one, _), n in zip(chances, runs, strict=True)]
    middle = float(np.mean([value for value, _, _ in chances]))
    half = _half_width([error for of_one in errors for error in of_one], len(comparisons)) if all(errors) else None
    speed, speed_interval = _speed(comparisons)
    return OverWorkloads(
        ", ".join([pair.method.accel, *settings]),
        pair.name,
        titles,
        middle,
        None if half is None else (max(0.0, middle - half), min(1.0, middle + half)),
        speed,
        speed_interval,
        _profile(comparisons),
    )


def with_freedom(errors: Sequence[float], n: tuple[int, int]) -> list[tuple[float, float]]:
    """The standard errors of a probability with their degrees of freedom; none with fewer than three runs on a side."""
    if not errors or min(n) < MIN_RUNS:
        return []
    runs = n if len(errors) == len(n) else [min(n)]
    return [(error, own - 1.0) for error, own in zip(errors, runs, strict=True)]


def _half_width(errors: Sequence[tuple[float, float]], workloads: int) -> float | None:
    """Half the 95 % interval of a mean over workloads, at Satterthwaite's degrees of freedom."""
    total = math.hypot(*(error for error, _ in errors))
    if not total:
        return None
    freedom = total**4 / sum(error**4 / own for error, own in errors)
    return float(stdtrit(freedom, 1 - LEVEL / 2)) * total / workloads


def _speed(comparisons: Sequence[Comparison]) -> tuple[float | None, Interval]:
    unfair = (Verdict.SIMULATED, Verdict.OTHER_MACHINE, Verdict.NONE_TRAIN)
    found = [one.estimates.get(THROUGHPUT.name) for one in comparisons if one.verdicts[SPEED].verdict not in unfair]
    known: list[Estimate] = [one for one in found if one is not None]
    if len(known) < len(comparisons):
        return None, None
    middle = float(np.mean([math.log(one.value) for one in known]))
    errors = [(one.error, one.freedom) for one in known if one.error and one.freedom]
    half = _half_width(errors, len(known)) if len(errors) == len(known) else None
    return math.exp(middle), None if half is None else (math.exp(middle - half), math.exp(middle + half))


def _profile(comparisons: Sequence[Comparison]) -> list[tuple[float, float]] | None:
    found = [one.targets[SAMPLES.name] for one in comparisons if SAMPLES.name in one.targets]
    if len(found) < len(comparisons):
        return None
    taken = np.array([np.where(np.array(one.reached) > 0, one.means, np.inf) for one in found])
    times = taken / taken.min(axis=1, keepdims=True)
    return [(float(share[0]), float(share[1])) for share in ((times <= factor).mean(axis=0) for factor in FACTORS)]
