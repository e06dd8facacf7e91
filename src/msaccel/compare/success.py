"""How often each side of a pair trains at all, compared before any accuracy."""

from __future__ import annotations

import math

from scipy.stats import fisher_exact, norm
from statsmodels.stats.proportion import confint_proportions_2indep

from msaccel.compare.baselines import BaselinePair
from msaccel.compare.statistics import LEVEL, POWER, Estimate


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


def runs_needed(share: float, margin: float, level: float = LEVEL) -> int | None:
    """How many runs a side show, in 80 of 100 comparisons, that a method trains more often than this by the margin.

    None where the baseline's share leaves no room for that much more. By Casagrande, Pike and Smith (Biometrics 34,
    1978), who approximate the power of Fisher's test.
    """
    more = share + margin
    if more > 1:
        return None
    mean = (share + more) / 2
    of_equals, of_others = 2 * mean * (1 - mean), share * (1 - share) + more * (1 - more)
    quantiles = norm.ppf(1 - level / 2) * math.sqrt(of_equals) + norm.ppf(POWER) * math.sqrt(of_others)
    return math.ceil(quantiles**2 * (1 + math.sqrt(1 + 4 * margin / quantiles**2)) ** 2 / (4 * margin**2))
