"""Each method at its own best value of a key, chosen on the validation split from the same values for all methods.

All seeds of a trial take part in the choice, and the same seeds are compared. What the choice adds to the spread of a
result is found by a bootstrap over whole seeds that chooses again in every sample; without it, identical methods for
which different values happen to be chosen would be called different too often.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from msaccel.compare.groups import ComparisonSet, number_or_word
from msaccel.compare.measures import FINAL
from msaccel.compare.method_runs import SHARE, MethodRuns, diverged
from msaccel.errors import UserError

RATE = "optimizer.lr"
_VALIDATION = "val/accuracy"
RESAMPLES = 1000
MIN_SEEDS = 3  # of every trial; with fewer a rate is chosen by chance, and the chance looks like an effect

Table = NDArray[np.float64]  # (seeds, trials), NaN where a trial lacks the seed


@dataclass(frozen=True, eq=False)
class Choice:
    """A tuned method in samples of its seeds, each of which chooses again.

    Attributes:
        seeds: of all trials. Methods with the same seeds get the same samples.
        counts: (RESAMPLES, seeds), how often each seed is in a sample.
        best: (RESAMPLES,), the place of the trial that a sample chooses.
        finals: (seeds, trials), the final accuracy of every attempt, minus infinity where it does not train.
        means: (RESAMPLES,), of the final accuracy; NaN in a sample without a run that trains; None where a trial has
            too few seeds.
    """

    seeds: list[int]
    counts: NDArray[np.int64]
    best: NDArray[np.int64]
    finals: Table
    means: Table | None

    @property
    def error(self) -> float | None:
        """The standard error of the mean, including the choice."""
        return None if self.means is None else spread(self.means, len(self.seeds))

    def error_of_difference(self, other: Choice) -> float | None:
        """The standard error of the mean difference in pairs of the same seed; None where there are no such pairs."""
        if self.means is None or other.means is None or self.seeds != other.seeds:
            return None
        return spread(self.means - other.means, len(self.seeds))


def spread(means: Table, n: int) -> float:
    """The standard error of a result, from its values in samples of n seeds."""
    return float(np.nanstd(means, ddof=1)) * math.sqrt(n / (n - 1))


def rates_tried(found: ComparisonSet) -> dict[MethodRuns, int]:
    """For each method of a set the number of rates that it was tried at."""
    return {method: len(family) for family in families(found, RATE) for method in family}


def tune(
    found: ComparisonSet, key: str, same_values: bool = True
) -> tuple[ComparisonSet, list[str], dict[MethodRuns, Choice]]:
    """Keeps each method at the value with the best mean of the last validation accuracy, over the runs that train.

    The other values are left out. A value at which fewer than half of the runs train is not chosen; a trial whose every
    run failed counts as a trial and cannot win. A method that failed at every value stays at the lowest.

    Args:
        same_values: whether methods that were tried at other values are refused.

    Returns:
        The set with the chosen trials, a sentence for each choice, and what it adds to the spread of each method.

    Raises:
        UserError: a trial has no validation accuracy, or methods were tried at other values.
    """
    every = families(found, key)
    finished = [family for family in every if any(method.runs for method in family)]
    failed = [family[0] for family in every if not any(method.runs for method in family)]
    if same_values and len({tuple(values(family, key)) for family in finished}) > 1:
        if without := [_name(family, key) for family in finished if values(family, key) == [""]]:
            raise UserError(
                f"--tune {key} needs values of each method ({found.title}), and {without[0]} has no such setting; "
                "leave out --tune, which compares each value as a method of its own."
            )
        tried = ", ".join(f"{_name(family, key)}: {' '.join(values(family, key))}" for family in finished)
        raise UserError(
            f"--tune {key} needs the same values for each method ({found.title}), but tried were {tried}; "
            "train those that are missing."
        )
    chosen, notes, choices = [], [], {}
    for family in finished:
        ended = [method for method in family if method.runs]
        best = best_trial(ended, key)
        chosen.append(best)
        if len(ended) == 1:
            continue
        validation = validations(ended, key)
        choices[best] = _choice(ended, validation)
        of_trials = dict(zip(values(ended, key), map(float, mean_scores(validation)), strict=True))
        notes.append(_note(best, dict.fromkeys(values(family, key), -1.0) | of_trials, _name(ended, key), key))
    return replace(found, methods=chosen + failed), notes, choices


def families(found: ComparisonSet, key: str) -> list[list[MethodRuns]]:
    """The trials of each method, which differ only by the key, in its order; also those whose every run diverged."""
    trials: dict[tuple[tuple[str, str], ...], list[MethodRuns]] = {}
    for method in found.methods:
        rest = tuple(item for item in method.settings.items() if item[0] != key)
        trials.setdefault(rest, []).append(method)
    return [
        sorted(family, key=lambda method: number_or_word(method.settings.get(key, ""))) for family in trials.values()
    ]


def _note(best: MethodRuns, scores: dict[str, float], name: str, key: str) -> str:
    value, tried = best.settings[key], list(scores)
    accuracies = ", ".join(f"{one} → {f'{score:.2%}' if score >= 0 else 'fails'}" for one, score in scores.items())
    note = f"{name}: {key}={value} by validation accuracy ({accuracies})."
    if value in (tried[0], tried[-1]) and math.isfinite(number_or_word(value)[0]):
        note += " It is the edge of what was tried; try further values for every method."
    return note


def _seeds(family: Sequence[MethodRuns]) -> list[int]:
    return sorted({record.seed for method in family for record in method.ended})


def validations(family: Sequence[MethodRuns], key: str) -> Table:
    """The last validation accuracies; 0 where that was not a number, or where the run diverged."""
    seeds = _seeds(family)
    table = np.full((len(seeds), len(family)), np.nan)
    for column, method in enumerate(family):
        found = [record.metrics.get(_VALIDATION) for record in method.runs]
        if all(value is None for value in found) and all(FINAL.read(record) is not None for record in method.runs):
            raise UserError(
                f"--tune {key}: {method.label} has no {_VALIDATION}, and the test set must not choose; "
                "train with data.val_fraction=0.0833333."
            )
        for record in method.ended:
            value = None if diverged(record) else record.metrics.get(_VALIDATION)
            table[seeds.index(record.seed), column] = value or 0.0
    return table


def trains(validation: Table) -> NDArray[np.bool_]:
    """Which runs train: those with half the median of the best trial."""
    found: NDArray[np.bool_] = validation >= SHARE * np.nanmedian(validation, axis=0).max()
    return found


def scores(weights: NDArray[np.int64], validation: Table) -> Table:
    """For each sample of seeds and each trial the mean accuracy of the runs that train; -1 where most do not."""
    with np.errstate(invalid="ignore"):
        counted = trains(validation)
        half = 2 * (weights @ counted) >= np.maximum(weights @ ~np.isnan(validation), 1)
        means = (weights @ np.where(counted, validation, 0.0)) / (weights @ counted)
    return np.where(half, means, -1.0)


def mean_scores(validation: Table) -> Table:
    """The score of each trial over all seeds."""
    return scores(np.ones((1, len(validation)), np.int64), validation)[0]


def best_trial(ended: Sequence[MethodRuns], key: str) -> MethodRuns:
    """The trial with the best score, of equals the first; a single one needs no validation accuracy."""
    return ended[int(mean_scores(validations(ended, key)).argmax())] if len(ended) > 1 else ended[0]


def alone(method: MethodRuns) -> Choice:
    """The choice of a method that was tried at one value."""
    return _choice([method], np.ones((method.attempts, 1)))


def _choice(family: Sequence[MethodRuns], validation: Table) -> Choice:
    """The trial that is chosen, and its mean final accuracy, in each sample of seeds."""
    enough = min(method.attempts for method in family) >= MIN_SEEDS
    seeds = _seeds(family)
    finals = np.full_like(validation, np.nan)
    for column, method in enumerate(family):
        for seed, accuracy in method.final_accuracies.items():
            finals[seeds.index(seed), column] = accuracy
    counts = np.random.default_rng(0).multinomial(len(seeds), [1 / len(seeds)] * len(seeds), RESAMPLES)
    best = scores(counts, validation).argmax(axis=1)
    trained = np.isfinite(finals)
    with np.errstate(invalid="ignore"):
        means: Table = (counts @ np.where(trained, finals, 0.0)) / (counts @ trained)
    return Choice(seeds, counts, best, finals, means[np.arange(RESAMPLES), best] if enough else None)


def values(family: Sequence[MethodRuns], key: str) -> list[str]:
    """The values of the key that a method was tried at."""
    return [method.param(key) for method in family]


def _name(family: Sequence[MethodRuns], key: str) -> str:
    settings = {name: value for name, value in family[0].settings.items() if name != key}
    return MethodRuns(settings, family[0].runs).label
