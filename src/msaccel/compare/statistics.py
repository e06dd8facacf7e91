"""Mean, spread, Welch's interval, equivalence and Holm's correction: what a few seeds can show, and what they cannot.

The interval is Student's with Welch's degrees of freedom: at five runs a side its false alarms stay below 5 %, where a
percentile bootstrap would give 12 to 17 %. Ratios are compared as differences of logarithms.

A sample without spread is not certainty: two constant samples give no estimate of chance, hence no interval and no p,
whether they agree or not. If one side is constant, only the other's spread is used.

Equivalence within a margin is shown by two one-sided tests (TOST, Schuirmann 1987): that the difference is above the
lower margin, and that it is below the upper one. The larger p counts.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray
from scipy.special import stdtr, stdtrit

LEVEL = 0.05
MIN_RUNS = 3
MIN_PAIRS = 5
POWER = 0.8
MAX_RUNS = 1000
_SAME = 1e-12  # relative: a mean of equal floats may differ from them in the last bit


@dataclass(frozen=True)
class Summary:
    """Mean, sample standard deviation (None with fewer than two values) and extremes."""

    n: int
    mean: float
    std: float | None
    lowest: float
    highest: float


@dataclass(frozen=True)
class Estimate:
    """A method against its baseline: a difference, a ratio where `is_ratio`, or the probability of ending above it.

    Attributes:
        low, high: 95 % interval; None where the samples cannot give one.
        p: two-sided, before any correction; None likewise.
        n: runs of the method and of the baseline.
        paired: whether runs of the same seed were compared.
        is_probability: whether it is one, in which case a half is no effect.
        error, freedom: standard error and degrees of freedom of the value, or of its logarithm if it is a ratio; None
            if the interval is.
    """

    value: float
    low: float | None
    high: float | None
    p: float | None
    n: tuple[int, int]
    is_ratio: bool = False
    is_probability: bool = False
    paired: bool = False
    error: float | None = None
    freedom: float | None = None

    @property
    def nothing(self) -> float:
        """The value that means no effect."""
        return 1.0 if self.is_ratio else 0.5 if self.is_probability else 0.0

    def equivalence_p(self, margin: float) -> float | None:
        """The p of equivalence: that the effect is inside `± margin`.

        Of a ratio, that it is within that share of 1; of a probability, that it is so near a half.
        """
        if not self.error or not self.freedom:
            return None
        distance = abs(self._from_nothing(self.value))
        return float(stdtr(self.freedom, (distance - self._scaled(margin)) / self.error))

    def visible(self, level: float = LEVEL) -> float | None:
        """The smallest effect that such samples would detect in 80 of 100 comparisons (p <= level, uncorrected)."""
        if not self.error or not self.freedom:
            return None
        smallest = float(stdtrit(self.freedom, 1 - level / 2) + stdtrit(self.freedom, POWER)) * self.error
        if self.is_probability:
            return min(smallest, 0.5)  # no overlap at all
        return _exp(smallest) - 1 if self.is_ratio else smallest

    def needed(self, margin: float, level: float = LEVEL) -> int | None:
        """How many runs on each side, more than there are, would decide the comparison at this level.

        With so many, equal methods are shown to be equivalent in 80 of 100 comparisons, and an effect as large as the
        margin is detected as often. None: no spread is known, or it takes more than MAX_RUNS.
        """
        if not self.error or not self.freedom:
            return None
        bound, now = self._scaled(margin), min(self.n)
        for runs in range(now + 1, MAX_RUNS + 1):
            freedom = self.freedom * (runs - 1) / (now - 1)
            quantiles = float(stdtrit(freedom, 1 - level) + stdtrit(freedom, (1 + POWER) / 2))
            if quantiles * self.error * math.sqrt(now / runs) <= bound:
                return runs
        return None

    def in_margins(self, effect: float, margin: float) -> float:
        """An effect in units of the margin; ratios are on a logarithmic scale, on which half is as far as double."""
        return self._from_nothing(effect) / self._scaled(margin)

    def _from_nothing(self, effect: float) -> float:
        return math.log(effect) if self.is_ratio else effect - self.nothing

    def _scaled(self, margin: float) -> float:
        return math.log1p(margin) if self.is_ratio else margin


def summarize(values: Sequence[float]) -> Summary | None:
    """The summary of some values; None if there are none."""
    if not values:
        return None
    array = np.asarray(values, dtype=np.float64)
    std = float(array.std(ddof=1)) if len(array) > 1 else None
    return Summary(len(array), float(array.mean()), std, float(array.min()), float(array.max()))


def difference(method: Mapping[int, float], baseline: Mapping[int, float], paired: bool = False) -> Estimate | None:
    """Mean of the method minus mean of the baseline; both by seed. None where a side has no value.

    Args:
        paired: compare runs of the same seed; only where at least five seeds are on both sides and their differences
            vary, else Welch.
    """
    if not method or not baseline:
        return None
    common = sorted(method.keys() & baseline.keys())
    paired = paired and len(common) >= MIN_PAIRS
    of_method, of_baseline = (
        np.array([side[seed] for seed in (common if paired else side)]) for side in (method, baseline)
    )
    value = float((of_method - of_baseline).mean() if paired else of_method.mean() - of_baseline.mean())
    n = len(of_method), len(of_baseline)
    samples = [of_method - of_baseline] if paired else [of_method, of_baseline]
    smallest = _SAME * float(np.abs(of_method).max() + np.abs(of_baseline).max())
    if paired and np.ptp(samples[0]) <= smallest < max(np.ptp(of_method), np.ptp(of_baseline)):
        return difference(method, baseline)  # pairs that all differ by the same, or by nothing, show no spread
    if min(n) < MIN_RUNS or all(np.ptp(sample) <= smallest for sample in samples):
        return Estimate(0.0 if abs(value) <= smallest else value, None, None, None, n, paired=paired)
    errors = [standard_error(sample) for sample in samples]
    return replace(welch(value, errors, n), paired=paired)


def standard_error(values: Sequence[float] | NDArray[np.float64]) -> float:
    """The standard error of the mean of two values or more."""
    return float(np.std(values, ddof=1)) / math.sqrt(len(values))


def half_width(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Half the 95 % interval (Student) of the mean of each column, of two rows or more."""
    n = len(values)
    half: NDArray[np.float64] = stdtrit(n - 1, 1 - LEVEL / 2) * np.std(values, axis=0, ddof=1) / math.sqrt(n)
    return half


def welch(value: float, errors: Sequence[float], n: tuple[int, int]) -> Estimate:
    """Interval and p of a difference, with the degrees of freedom of Welch and Satterthwaite.

    Args:
        errors: the standard errors of both means, or the one of the mean difference of pairs.
    """
    error = math.hypot(*errors)
    freedom = error**4 / sum(one**4 / (runs - 1) for one, runs in zip(errors, n, strict=False))
    half = float(stdtrit(freedom, 1 - LEVEL / 2)) * error
    p = 2 * float(stdtr(freedom, -abs(value) / error))
    return Estimate(value, value - half, value + half, p, n, error=error, freedom=freedom)


def ratio(method: Mapping[int, float], baseline: Mapping[int, float], paired: bool = False) -> Estimate | None:
    """Geometric mean of the method over the baseline's, with the interval of the difference of logarithms."""
    if any(value <= 0 for side in (method, baseline) for value in side.values()):
        return None
    of_method, of_baseline = ({seed: math.log(value) for seed, value in side.items()} for side in (method, baseline))
    found = difference(of_method, of_baseline, paired)
    if found is None:
        return None
    low, high = (None if bound is None else _exp(bound) for bound in (found.low, found.high))
    return replace(found, value=_exp(found.value), low=low, high=high, is_ratio=True)


def ratio_of_means(method: NDArray[np.float64], baseline: NDArray[np.float64]) -> Estimate:
    """Mean over mean of positive values, with the interval of Fieller (1954) at Welch's degrees of freedom.

    It holds 1 exactly where Welch's test sees no difference; an interval of logarithms misses 1 in up to 7 of 100 pairs
    of equal skewed samples of five. There is no interval if the baseline's mean is not distinguishable from 0.
    """
    n, means = (len(method), len(baseline)), (float(method.mean()), float(baseline.mean()))
    unbounded = Estimate(means[0] / means[1], None, None, None, n, is_ratio=True)
    if min(n) < MIN_RUNS or all(np.ptp(side) <= _SAME * side.max() for side in (method, baseline)):
        return unbounded
    errors = [standard_error(side) for side in (method, baseline)]
    quantile = float(stdtrit(welch(means[0] - means[1], errors, n).freedom, 1 - LEVEL / 2))
    rest = [mean**2 - (quantile * error) ** 2 for mean, error in zip(means, errors, strict=True)]
    if rest[1] <= 0:
        return unbounded
    middle, half = means[0] * means[1], math.sqrt(max(0.0, (means[0] * means[1]) ** 2 - rest[0] * rest[1]))
    return replace(unbounded, low=max(0.0, (middle - half) / rest[1]), high=(middle + half) / rest[1])


def holm(p_values: Sequence[float | None]) -> list[float | None]:
    """Holm's adjusted p values, in the order given: each is at least its own p, and no larger p gets a smaller one.

    What was not tested is None, and stays so.
    """
    given = np.array([p for p in p_values if p is not None], dtype=np.float64)
    rising = np.argsort(given)
    adjusted = np.empty_like(given)
    adjusted[rising] = np.minimum(np.maximum.accumulate(given[rising] * np.arange(len(given), 0, -1)), 1)
    tested = iter(adjusted.tolist())
    return [None if p is None else next(tested) for p in p_values]


def _exp(value: float) -> float:
    return math.exp(min(value, 700.0))  # the interval of three runs with a huge spread may overflow a float
