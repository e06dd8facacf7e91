"""Each method at its own best value of a key, chosen on the validation split with as many trials for each."""

from __future__ import annotations

from dataclasses import replace

from msaccel.compare.fairness import trials
from msaccel.compare.groups import ComparisonSet, MethodRuns
from msaccel.compare.runs import Record
from msaccel.errors import UserError
from msaccel.tracking.status import FAILED

_VALIDATION = "val/accuracy"


def tune(found: ComparisonSet, key: str) -> tuple[ComparisonSet, list[str]]:
    """Keeps each method at the value with the best last validation accuracy, over the seeds that all its trials have.

    The other values are left out. A trial whose every run failed counts as a trial and cannot win.

    Returns:
        The set with the chosen trials, and a sentence for each choice.

    Raises:
        UserError: a trial has no validation accuracy, trials share no seed, or methods had unequal numbers of them.
    """
    families = trials(found, key)
    counts = {len(family) + len(_all_failed(family, found, key)) for family in families}
    if len(counts) > 1:
        tried = ", ".join(f"{_name(family, key)}: {_values(family, found, key)}" for family in families)
        raise UserError(
            f"--tune {key} needs as many values for each method ({found.title}), but tried were {tried}; "
            "train those that are missing."
        )
    chosen, notes = [], []
    for family in families:
        best, scores = _best(family, key)
        chosen.append(best)
        if len(family) > 1:
            value, accuracies = (
                best.settings[key],
                ", ".join(f"{tried} → {score:.2%}" for tried, score in scores.items()),
            )
            notes.append(f"{_name(family, key)}: {key}={value} by validation accuracy ({accuracies}).")
            if value in (min(scores, key=_number), max(scores, key=_number)):
                notes[-1] += " It is the edge of what was tried; try further values for every method."
    return replace(found, methods=chosen), notes


def _best(family: list[MethodRuns], key: str) -> tuple[MethodRuns, dict[str, float]]:
    if len(family) == 1:
        return family[0], {}
    seeds = set.intersection(*({record.seed for record in method.runs} for method in family))
    if not seeds:
        raise UserError(
            f"--tune {key}: the trials of {_name(family, key)} have no seed in common; train every value with seed=0."
        )
    scores = {method.settings[key]: _score(method, seeds, key) for method in family}
    return max(family, key=lambda method: (scores[method.settings[key]], -_number(method.settings[key]))), scores


def _score(method: MethodRuns, seeds: set[int], key: str) -> float:
    found = [record.metrics.get(_VALIDATION) for record in method.runs if record.seed in seeds]
    known = [value for value in found if value is not None]
    if len(known) < len(found):
        raise UserError(
            f"--tune {key}: {method.label} has no {_VALIDATION}, and the test set must not choose; "
            "train with data.val_fraction=0.0833."
        )
    return sum(known) / len(known)


def _all_failed(family: list[MethodRuns], found: ComparisonSet, key: str) -> set[str]:
    """Values of the key at which every run of the family's method failed: tried, and lost."""
    finished = {method.param(key) for method in family}
    alike = [record for record in found.unfinished if record.status == FAILED and _is_of(record, family[0], key)]
    return {record.params[key] for record in alike if record.params.get(key) not in finished and key in record.params}


def _is_of(record: Record, method: MethodRuns, key: str) -> bool:
    return all(record.params.get(name, "") == value for name, value in method.settings.items() if name != key)


def _values(family: list[MethodRuns], found: ComparisonSet, key: str) -> str:
    values = [method.param(key) for method in family]
    return " ".join(sorted([*values, *_all_failed(family, found, key)], key=_number))


def _name(family: list[MethodRuns], key: str) -> str:
    settings = {name: value for name, value in family[0].settings.items() if name != key}
    return MethodRuns(settings, family[0].runs).label


def _number(value: str) -> float:
    try:
        return float(value)
    except ValueError:
        return 0.0
