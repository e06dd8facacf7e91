"""How probable it is that a run with a method ends above one without it, over all runs, those that fail included.

A run that does not train ranks below every run that does and ties with others like it; a tie counts half. So there is
an answer where methods differ both in how often they train and in how well. A half is no effect.

The error is that of Brunner and Munzel (2000), from the placement of each run among those of the other side. Where
runs of the same seed were made alike, the two runs of a seed are not compared with each other: they have more in common
than runs that a user would make. What is left is a U statistic of the seeds, whose error is the jackknife's (Arvesen
1969).

A method that fails in half of its runs and is better in the others ends above its baseline with a probability of one
half, and yet wins every pair in one of 2ⁿ studies with n runs. So no p is below that of n pairs which all agree, nor is
an interval narrower than theirs (Clopper and Pearson). This also holds where the sides do not overlap and no error is
known.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from msaccel.compare.baselines import BaselinePair
from msaccel.compare.method_runs import MethodRuns
from msaccel.compare.statistics import LEVEL, MIN_PAIRS, Estimate, standard_error, welch
from msaccel.compare.tuning import Choice, alone, spread

MIN_RUNS_TO_RANK = 6  # on each side; with five even complete separation has p = 0.0625
_NO_ERROR = 1e-12

Array = NDArray[np.float64]


def superiority(
    pair: BaselinePair, paired: bool = False, tuned: Mapping[MethodRuns, Choice] | None = None
) -> Estimate | None:
    """The probability of a pair, judged; None without accuracies. The arguments are those of `probability`."""
    n = len(pair.method.final_accuracies), len(pair.baseline.final_accuracies)
    if not all(n):
        return None
    value, errors, paired = probability(pair, paired, tuned)
    return replace(_estimate(value, errors, n), paired=paired)


def probability(
    pair: BaselinePair, paired: bool = False, tuned: Mapping[MethodRuns, Choice] | None = None
) -> tuple[float, list[float], bool]:
    """The probability of a pair that has accuracies, with what the choice of rates adds to its error.

    Args:
        paired: runs of the same seed were made alike; only where both sides have the same seeds, five or more.
        tuned: the choices of methods that were tuned.

    Returns:
        The probability; the standard errors of both sides, or the one of pairs, or none where it is not known; whether
        runs of a seed were taken for pairs.
    """
    finals = [side.final_accuracies for side in pair.sides]
    paired = paired and finals[0].keys() == finals[1].keys() and len(finals[0]) >= MIN_PAIRS
    method, baseline = (np.array(list(side.values())) for side in finals)
    value, errors = chance(method, baseline, paired)
    if tuned and any(side in tuned for side in pair.sides):
        choices = [tuned.get(side) or alone(side) for side in pair.sides]
        chosen = _error_of_choice(choices[0], choices[1], paired)
        if chosen is None or chosen > math.hypot(*errors):  # choosing again takes nothing away from the error
            errors = [] if chosen is None else [chosen]
    return value, errors, paired


def least_p(runs: int) -> float:
    """The smallest p that so many runs on the smaller side can give."""
    return float(2.0 ** (1 - runs))


def chance(method: Array, baseline: Array, paired: bool = False) -> tuple[float, list[float]]:
    """The probability that a value of the method is above one of the baseline, and its standard errors.

    Args:
        paired: values at the same place belong to the same seed, of which there are three or more.

    Returns:
        The errors are of both sides, or the one of pairs; none with a single value on a side.
    """
    above = _above(method, baseline)
    counted = 1 - np.eye(len(method)) if paired else np.ones_like(above)
    of_method, of_baseline = (np.average(above, axis=axis, weights=counted) for axis in (1, 0))
    n = min(above.shape)
    if paired:
        errors = [(n - 1) / (n - 2) * standard_error(of_method + of_baseline)]
    else:
        errors = [standard_error(one) for one in (of_method, of_baseline)] if n > 1 else []
    return float(np.average(above, weights=counted)), errors


def _above(method: Array, baseline: Array) -> Array:
    found: Array = (method[:, None] > baseline[None, :]) + 0.5 * (method[:, None] == baseline[None, :])
    return found


def _error_of_choice(method: Choice, baseline: Choice, paired: bool) -> float | None:
    """The standard error over samples of whole seeds, in each of which both sides choose again; None if they cannot."""
    if method.means is None or baseline.means is None:
        return None
    paired = paired and method.seeds == baseline.seeds
    counts, best = baseline.counts, baseline.best
    if not paired:  # then samples of one side say nothing about the other
        counts, best = np.roll(counts, 1, axis=0), np.roll(best, 1)
    shares = np.full(len(best), np.nan)
    for own, theirs in {*zip(method.best.tolist(), best.tolist(), strict=True)}:
        here = (method.best == own) & (best == theirs)
        above = _above(method.finals[:, own], baseline.finals[:, theirs])
        counted = ~np.isnan(method.finals[:, own])[:, None] & ~np.isnan(baseline.finals[:, theirs])[None, :]
        if paired:
            counted &= ~np.eye(len(counted), dtype=bool)
        wins, pairs = (
            np.sum((method.counts[here] @ table) * counts[here], axis=1) for table in (above * counted, counted)
        )
        shares[here] = wins / np.where(pairs > 0, pairs, np.nan)
    return spread(shares, min(len(method.seeds), len(baseline.seeds)))


def _estimate(value: float, errors: Sequence[float], n: tuple[int, int]) -> Estimate:
    """The interval is Student's, and at least as wide as that of as many pairs as the smaller side has runs."""
    runs, error = min(n), math.hypot(*errors)
    without = Estimate(value, None, None, None, n, is_probability=True)
    if runs < MIN_RUNS_TO_RANK or not errors or (error <= _NO_ERROR and 0 < value < 1):
        return without
    low, high, p = value, value, 0.0  # where the sides do not overlap
    found = without
    if error > _NO_ERROR:
        found = welch(value - 0.5, errors, n if len(errors) > 1 else (runs, runs))
        assert found.low is not None and found.high is not None and found.p is not None
        low, high, p = found.low + 0.5, found.high + 0.5, found.p
    surest = (LEVEL / 2) ** (1 / runs)
    return replace(
        without,
        low=max(0.0, min(low, surest)),
        high=min(1.0, max(high, 1 - surest)),
        p=max(p, least_p(runs)),
        error=found.error,
        freedom=found.freedom,
    )
