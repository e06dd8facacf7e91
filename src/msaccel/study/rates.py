"""The rates at which the arms of a study are trained: growing grids, neighbours, and the best one."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from msaccel.compare.groups import group
from msaccel.compare.runs import Record
from msaccel.compare.tuning import RATE, best_trial, families
from msaccel.study.jobs import StudyJob
from msaccel.study.protocol import StudyPart

Grids = dict[str, list[float]]  # rates by the name of an arm


def grown(part: StudyPart, grids: Grids, best: Collection[tuple[str, float]]) -> Grids:
    """The grids, longer by a rate at each edge where an arm is best; arms without rates of their own share one.

    Args:
        best: arms with the rates at which they are best.
    """
    found = {}
    for arm, grid in grids.items():
        alike = {arm} if arm in part.own_rates else {*part.arms} - {*part.own_rates}
        at = {rate for name, rate in best if name in alike}
        low, high = ({rate} & at for rate in (grid[0], grid[-1]))
        found[arm] = [*(rate / 2 for rate in low), *grid, *(2 * rate for rate in high)]
    return found


def neighbours(rate: float, rates: list[float], many: int) -> list[float]:
    """A rate of a grid and up to `many` neighbours on each side."""
    place = rates.index(rate)
    return rates[max(0, place - many) : place + many + 1]


def best_rates(trials: Mapping[StudyJob, Record]) -> dict[str, float]:
    """The rate with the best validation accuracy of each arm, as `compare --tune` chooses it."""
    of_run = {record.run_id: job for job, record in trials.items()}
    chosen: dict[str, float] = {}
    for found in group(trials.values(), across_budgets=True):
        for family in families(found, RATE):
            if ended := [method for method in family if method.runs]:
                job = of_run[best_trial(ended, RATE).runs[-1].run_id]
                chosen[job.arm] = job.rate
    return chosen
