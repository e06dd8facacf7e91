"""Which runs train at all, compared before any accuracy: a mean over runs that failed describes none of them.

A run trains if its final accuracy is at least half the median of its baseline's, of tuned methods half that of the best
baseline. One whose accuracy is not a number does not, nor one that ended because its gradients were not finite.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable

from scipy.stats import fisher_exact
from statsmodels.stats.proportion import confint_proportions_2indep

from msaccel.compare.baselines import BaselinePair, is_baseline
from msaccel.compare.groups import MethodRuns
from msaccel.compare.measures import FINAL
from msaccel.compare.runs import Record
from msaccel.compare.statistics import Estimate
from msaccel.tracking.status import FINISHED

SHARE = 0.5


def least_accuracy(methods: Iterable[MethodRuns]) -> float:
    """The final accuracy from which on a run counts as trained, by the best baseline among the methods; without a
    baseline every number does."""
    finals = [[FINAL.read(run) for run in method.runs] for method in methods if is_baseline(method)]
    medians = [statistics.median(0.0 if value is None else value for value in of_method) for of_method in finals]
    return SHARE * max(medians, default=0.0)


def trained(method: MethodRuns, least: float) -> list[Record]:
    """The runs of a method that train."""
    return [run for run in method.runs if (value := FINAL.read(run)) is not None and value >= least]


def attempts(method: MethodRuns) -> int:
    """Seeds that came to an end of their own: finished, or ended by gradients that were not finite."""
    return len({run.seed for run in (*method.runs, *method.unfinished) if run.status == FINISHED or diverged(run)})


def diverged(run: Record) -> bool:
    """Whether a run ended because its gradients were not finite."""
    return run.tags.get("diverged") == "true"


def more_often(pair: BaselinePair, least: float) -> Estimate | None:
    """The difference of the shares that train, Newcombe's interval and the p of Fisher's exact test.

    None where all runs of both sides train, or accuracies were not measured at all.
    """
    if not any(FINAL.read(run) is not None for side in pair.sides for run in side.runs):
        return None
    method, baseline = ((len(trained(side, least)), attempts(side)) for side in pair.sides)
    if method[0] == method[1] and baseline[0] == baseline[1]:
        return None
    low, high = confint_proportions_2indep(*method, *baseline, method="newcomb", compare="diff")
    table = [[trains, runs - trains] for trains, runs in (method, baseline)]
    share = method[0] / method[1] - baseline[0] / baseline[1]
    return Estimate(share, float(low), float(high), float(fisher_exact(table).pvalue), (method[1], baseline[1]))
