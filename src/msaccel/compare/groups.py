"""Which runs may be compared with each other, and which of them differ only by their seed."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Hashable, Iterable
from dataclasses import dataclass, replace
from functools import cache

from msaccel.accel import steps_keys
from msaccel.compare.method_runs import MethodRuns, diverged, least_accuracy
from msaccel.compare.runs import Record
from msaccel.data.sets import data_sets
from msaccel.schema import OPERATIONAL
from msaccel.tracking.status import FINISHED

# Where a job reads, and how its processes find each other, does not change what it computes either.
_NOT_COMPARED = (*OPERATIONAL, "seed", "data.root", "device.name", "device.simulate")
_BUDGET = ("train.epochs", "train.max_updates")
_DEVICE = ("device.target", "device.servers", "device.ranks_per_server", "device.threads")
PRECISION = "precision"
_EVALUATION = ("train.eval_every", "train.target_accuracy", "train.stop_at_target", "train.tta")

_LOSS = "train/loss"
_MEASURED = ("time/", "throughput/", "memory/", "machine/", "system/")  # differ in every run

Conditions = dict[str, dict[str, str]]


@dataclass(frozen=True, eq=False)
class ComparisonSet:
    """Methods under the same conditions: the only ones that are ever compared.

    Attributes:
        conditions: what they have in common, by aspect: model, data, device, simulated, evaluation, budget.
        unfinished: runs under these conditions that are not averaged.
    """

    conditions: Conditions
    methods: list[MethodRuns]
    unfinished: list[Record]

    @property
    def runs(self) -> list[Record]:
        """The finished runs of all its methods."""
        return [run for method in self.methods for run in method.runs]

    @property
    def simulated(self) -> bool:
        return self.conditions["simulated"]["simulated"] == "true"

    @property
    def precision(self) -> str:
        """`fp32`, or `bf16 and fp32` where methods differ in it."""
        runs = [*self.unfinished, *(run for method in self.methods for run in method.known)]
        return " and ".join(sorted({run.params.get(PRECISION, "") for run in runs}))

    @property
    def title(self) -> str:
        """`lenet, mnist, CPU 1 × 1, fp32, 3 epochs`."""
        common = self.conditions
        device = common["device"]
        ranks = f"{device.get('device.servers', '')} × {device.get('device.ranks_per_server', '')}"
        parts = [
            common["model"].get("model.name", ""),
            common["data"].get("data.name", ""),
            f"{device.get('device.target', '')} {ranks}".strip(" ×"),
            "simulated" if self.simulated else "",
            self.precision,
            self.budget,
        ]
        return ", ".join(part for part in parts if part)

    @property
    def budget(self) -> str:
        """`3 epochs`; empty where methods differ in it."""
        trained = {budget(run) for method in self.methods for run in method.trained}
        return self.conditions["budget"].get("budget") or (trained.pop() if len(trained) == 1 else "")


def conditions(record: Record, given: str = "") -> Conditions:
    """What two runs must share to be compared, by aspect and key.

    Args:
        given: the budget; empty to take the run's own.
    """
    params = record.params

    def chosen(*prefixes: str) -> dict[str, str]:
        return {key: params[key] for key in _compared(tuple(params), prefixes)}

    return {
        "model": chosen("model."),
        # By the name of what was read: the user's own folder or text is not the data set that the key names.
        "data": {**chosen("data."), **_data_name(record), "digest": _digest(record)},
        "device": chosen(*_DEVICE),
        "simulated": {"simulated": record.tags.get("simulated", "false")},
        "evaluation": chosen(*_EVALUATION),
        "budget": {"budget": given or budget(record)},
    }


@cache  # thousands of runs have the same keys
def _compared(keys: tuple[str, ...], prefixes: tuple[str, ...]) -> list[str]:
    return sorted(key for key in keys if key.startswith(prefixes) and not key.startswith(_NOT_COMPARED))


def unlike(one: Conditions, other: Conditions) -> list[tuple[str, str, str, str]]:
    """Aspect, key and both values of each condition that differs."""
    return [
        (aspect, key, of_one.get(key, ""), of_other.get(key, ""))
        for aspect, of_one in one.items()
        for of_other in [other[aspect]]
        for key in of_one | of_other
        if of_one.get(key, "") != of_other.get(key, "")
    ]


def _data_name(record: Record) -> dict[str, str]:
    name = record.tags.get("data", "")
    return {"data.name": name} if name else {}


def _digest(record: Record) -> str:
    """The digest of the training data; empty for samples drawn from the seed, which the settings fully describe."""
    data_set = data_sets().get(record.params.get("data.name", ""))
    return "" if data_set and data_set.SETTINGS.seeded else record.digest[:12]


def budget(record: Record) -> str:
    """The samples that a run was given: `3 epochs`, or `12800 samples` where only updates are known."""
    updates = record.number("train.max_updates")
    if updates is None:
        return f"{record.params.get('train.epochs', '?')} epochs"
    epochs = record.metrics.get("epoch")
    if epochs is not None and record.status == FINISHED and record.params.get("train.stop_at_target") != "True":
        return f"{epochs:.6g} epochs"
    return f"{updates * global_batch(record):.0f} samples"


def global_batch(record: Record) -> int:
    """Samples of one update, over all ranks."""
    factors = ("train.batch_size", *steps_keys(), "device.servers", "device.ranks_per_server")
    return int(math.prod(record.number(key) or 1 for key in factors))


def group(records: Iterable[Record], across_budgets: bool = False) -> list[ComparisonSet]:
    """Sets of runs under the same conditions, each with its methods; `none` comes first.

    Args:
        across_budgets: the budget is no condition but a setting, as of the arms of a study, which declares them.
    """
    every = list(records)
    # A diverged run was given the budget of its other seeds, in whatever unit; if all seeds diverged, the budget of the
    # runs that were given equally many samples.
    finished = [record for record in every if record.status == FINISHED]
    budgets = [(record, budget(record)) for record in finished] if len(finished) < len(every) else []
    of_seeds = {_but_for_the_seed(record): one for record, one in budgets}
    of_others = {_samples_given(record): one for record, one in budgets}
    by_conditions: dict[str, tuple[Conditions, list[Record]]] = {}
    for record in every:
        given = ""
        if record.status != FINISHED:
            given = of_seeds.get(_but_for_the_seed(record)) or of_others.get(_samples_given(record), "")
        common = conditions(record, given)
        if across_budgets:
            common["budget"] = {}
        by_conditions.setdefault(repr(common), (common, []))[1].append(record)
    sets = [_set(common, members) for _, (common, members) in sorted(by_conditions.items())]
    return [found for found in sets if found.methods or found.unfinished]


def _samples_given(record: Record) -> Hashable:
    """The data of a run, and what ends it."""
    updates = record.number("train.max_updates") or 0
    ends = [record.params.get(key) for key in ("train.epochs", "train.stop_at_target")]
    return repr(conditions(record)["data"]), updates * global_batch(record), *ends


def _but_for_the_seed(record: Record) -> Hashable:
    own = ("seed", *OPERATIONAL)
    return frozenset((key, value) for key, value in record.params.items() if not key.startswith(own))


def _set(common: Conditions, members: list[Record]) -> ComparisonSet:
    members = sorted(members, key=lambda record: record.started)
    fixed = {key for keys in common.values() for key in keys}
    equal = _BUDGET if common["budget"] else ()
    differing = ["accel", *sorted(key for key in _differing(members) - fixed - {"accel"} if key not in equal)]
    by_settings: dict[tuple[str, ...], list[Record]] = defaultdict(list)
    for record in members:
        by_settings[tuple(record.params.get(key, "") for key in differing)].append(record)
    methods: list[MethodRuns] = []
    for values, runs in sorted(
        by_settings.items(), key=lambda item: (item[0][0] != "none", *map(number_or_word, item[0]))
    ):
        ended = [record for record in runs if record.status == FINISHED or diverged(record)]
        if latest := {record.seed: record for record in ended}:
            finished = _unequal([latest[seed] for seed in sorted(latest) if latest[seed].status == FINISHED])
            counted = len(finished) + sum(map(diverged, latest.values()))
            rest = (record for record in runs if record.status != FINISHED)
            unfinished = tuple(one for one in rest if not diverged(one) or one is latest[one.seed])
            settings = dict(zip(differing, values, strict=True))
            methods.append(MethodRuns(settings, finished, len(ended) - counted, unfinished))
    reported = [key for key in differing if key == "accel" or len({method.settings[key] for method in methods}) > 1]
    least = least_accuracy(methods)
    methods = [replace(one, settings={key: one.settings[key] for key in reported}, least=least) for one in methods]
    return ComparisonSet(common, methods, [record for record in members if record.status != FINISHED])


def _unequal(runs: list[Record]) -> list[Record]:
    """The runs without those that repeat another one's results, as happens if the seed has no effect."""
    found: dict[object, Record] = {}
    for run in runs:
        results = {name: value for name, value in run.metrics.items() if not name.startswith(_MEASURED)}
        found.setdefault(frozenset(results.items()) if _LOSS in results else run, run)
    return list(found.values())


def number_or_word(value: str) -> tuple[float, str]:
    """A sort key: numbers by size, then words."""
    try:
        number = float(value)
    except ValueError:
        return math.inf, value
    return (math.inf if math.isnan(number) else number), value


def _differing(records: list[Record]) -> set[str]:
    """Keys with more than one value among the runs that have them; only a method's own runs have the method's keys."""
    values: dict[str, set[str]] = defaultdict(set)
    for record in records:
        for key, value in record.params.items():
            values[key].add(value)
    return {key for key, found in values.items() if len(found) > 1 and not key.startswith(_NOT_COMPARED)}
