"""How many values of a key each method of a set was tried at."""

from __future__ import annotations

from msaccel.compare.groups import ComparisonSet
from msaccel.compare.method_runs import MethodRuns

RATE = "optimizer.lr"


def trials(found: ComparisonSet, key: str) -> list[list[MethodRuns]]:
    """The methods of a set in groups whose members differ only by the key."""
    families: dict[tuple[tuple[str, str], ...], list[MethodRuns]] = {}
    for method in found.methods:
        rest = tuple(item for item in method.settings.items() if item[0] != key)
        families.setdefault(rest, []).append(method)
    return list(families.values())


def rates_tried(found: ComparisonSet) -> dict[MethodRuns, int]:
    """For each method of a set the number of rates that it was tried at."""
    return {method: len(family) for family in trials(found, RATE) for method in family}
