"""How often each side of a pair trains at all, compared before any accuracy."""

from __future__ import annotations

from scipy.stats import fisher_exact
from statsmodels.stats.proportion import confint_proportions_2indep

from msaccel.compare.baselines import BaselinePair
from msaccel.compare.statistics import Estimate


def more_often(pair: BaselinePair) -> Estimate | None:
    """The difference of the shares that train, Newcombe's interval and the p of Fisher's exact test.

    None where all runs of both sides train, or accuracies were not measured at all.
    """
    method, baseline = ((len(side.trained), side.attempts) for side in pair.sides)
    if pair.method.least is None or (method[0] == method[1] and baseline[0] == baseline[1]):
        return None
    low, high = confint_proportions_2indep(*method, *baseline, method="newcomb", compare="diff")
    table = [[trains, runs - trains] for trains, runs in (method, baseline)]
    share = method[0] / method[1] - baseline[0] / baseline[1]
    return Estimate(share, float(low), float(high), float(fisher_exact(table).pvalue), (method[1], baseline[1]))
