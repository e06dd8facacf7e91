"""Reservations about a pair that is compared nevertheless: each flag is a sentence with the key and what to change.

Pairs under other conditions (model, data, device, precision, evaluation, budget) never get here:
`msaccel.compare.baselines` refuses them.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from msaccel.compare.advice import BATCH, train_baseline
from msaccel.compare.baselines import BaselinePair
from msaccel.compare.groups import ComparisonSet
from msaccel.compare.measures import FINAL, SUCCESS, SUPERIORITY, THROUGHPUT
from msaccel.compare.method_runs import MethodRuns, counted
from msaccel.compare.runs import Record, short
from msaccel.compare.statistics import Estimate
from msaccel.compare.tuning import RATE
from msaccel.tracking.provenance import DIRTY

_MACHINE = ("processor", "kernels")  # tags of a run
_CONTENDED = "machine/contended"
_MAX_CONTENDED = 0.1


@dataclass(frozen=True)
class Flag:
    """A reservation about a pair.

    Attributes:
        aspect: a word for what it is about, such as commit or seeds.
    """

    aspect: str
    sentence: str


_SIMULATED = Flag("simulated", "simulated=true: virtual ranks take turns, so times mean nothing and get no verdict.")


def flags(
    pair: BaselinePair,
    found: ComparisonSet,
    tried: Mapping[MethodRuns, int],
    estimates: Mapping[str, Estimate],
    tuned: str | None = None,
    paired: bool = False,
    declared: bool = False,
    store: Sequence[str] = (),
) -> list[Flag]:
    """All reservations about a pair of a set.

    Args:
        tried: for each method the number of rates that it was tried at.
        estimates: of the pair, by the measure's name.
        tuned: the key whose value was chosen for each method separately, and may differ.
        paired: whether runs of the same seed should be compared.
        declared: whether a study says that these two are compared, whatever else they differ in.
        store: overrides that name the store in a command, where it is not the default one.
    """
    return [
        *_success(pair, estimates),
        *_commit(pair),
        *_machine(pair),
        *_seeds(pair),
        *_missing(pair),
        *_unpaired(pair, estimates, paired),
        *_schedule(pair),
        *_rate(pair, tried, tuned),
        *_settings(pair, tuned, declared, store),
        *_selection(pair),
        *_unfinished(pair),
        *([_SIMULATED] if found.simulated else _busy(pair)),
    ]


def _commit(pair: BaselinePair) -> Iterator[Flag]:
    of_method, of_baseline = (
        {record.tags.get("git_commit", "unknown") for record in side.known} for side in pair.sides
    )
    if len(of_method | of_baseline) > 1:
        both = f"{_listed(of_method)} for {pair.method.accel} and {_listed(of_baseline)} for {pair.baseline.accel}"
        yield Flag("commit", f"git_commit is {both}; train both with the same code.")
    dirty = sorted(commit for commit in of_method | of_baseline if commit.endswith(DIRTY))
    if dirty:
        yield Flag(
            "dirty", f"git_commit is {_listed(set(dirty))}: files differed from the commit; commit, then train again."
        )


def _success(pair: BaselinePair, estimates: Mapping[str, Estimate]) -> Iterator[Flag]:
    shares = estimates.get(SUCCESS)
    if shares and shares.low is not None and shares.high is not None:
        of_method, of_baseline = (f"{len(side.trained)} of {side.attempts}" for side in pair.sides)
        yield Flag(
            "success",
            f"{of_method} runs of {pair.method.label} train and {of_baseline} of {pair.baseline.label} (final accuracy "
            f"at least {pair.method.least:.1%}): {100 * shares.value:+.0f} points [{100 * shares.low:+.0f}, "
            f"{100 * shares.high:+.0f}], p = {shares.p:.2g} by Fisher's test{_above(pair, estimates)}; all else is of "
            "the runs that train.",
        )


def _above(pair: BaselinePair, estimates: Mapping[str, Estimate]) -> str:
    found = estimates.get(SUPERIORITY)
    if not found:
        return ""
    bounds = "" if found.low is None or found.high is None else f" [{100 * found.low:.1f}, {100 * found.high:.1f}]"
    return f"; {pair.method.accel} ends above in {100 * found.value:.1f} % of all pairs{bounds}, failed runs lowest"


def _machine(pair: BaselinePair) -> Iterator[Flag]:
    for tag in _MACHINE:
        found = {run.tags.get(tag, "unknown") for side in pair.sides for run in side.known}
        if len(found) > 1:
            yield Flag("machine", f"{tag} is {' and '.join(sorted(found))}: times are not compared; train all on one.")


def other_machines(pair: BaselinePair) -> bool:
    """Whether the runs of a pair had different processors or kernels.

    Names must be equal: earlier runs have that of the model alone, which several processors share.
    """
    return any(_machine(pair))


def _seeds(pair: BaselinePair) -> Iterator[Flag]:
    of_method, of_baseline = ([run.seed for run in side.ended] for side in pair.sides)
    if of_method != of_baseline:
        yield Flag(
            "seeds",
            f"seed is {_numbers(of_method)} for {pair.method.accel} and {_numbers(of_baseline)} for "
            f"{pair.baseline.accel}: whoever chooses seeds can choose a result; train both with the same ones.",
        )


def _missing(pair: BaselinePair) -> Iterator[Flag]:
    for side in pair.sides:
        for measure in (FINAL, THROUGHPUT):
            known = sum(measure.read(run) is not None for run in side.runs)
            if 0 < known < len(side.runs):
                yield Flag(
                    "missing", f"{measure.heading} is known of {known} of {len(side.runs)} runs of {side.label}."
                )


def _unpaired(pair: BaselinePair, estimates: Mapping[str, Estimate], paired: bool) -> Iterator[Flag]:
    if paired and (final := estimates.get(FINAL.name)) and not final.paired:
        yield Flag(
            "paired",
            f"{pair.method.label} and {pair.baseline.label} are not compared by seed, which needs five seeds that "
            "train on both sides, differences that vary, and where rates are chosen the same seeds of every value; the "
            "intervals are Welch's.",
        )


def _schedule(pair: BaselinePair) -> Iterator[Flag]:
    """Flags a rate that had not decayed at the end, and accuracies measured after unequal numbers of samples."""
    for side in pair.sides:
        early = [record for record in side.runs if _ended_early(record)]
        if early:
            epochs = statistics.fmean(record.metrics["epoch"] for record in early)
            name = side.param("schedule.name") or "constant"
            yield Flag(
                "schedule",
                f"schedule={name} of {side.label} was made for {early[0].params['train.epochs']} epochs, and "
                f"{len(early)} of {len(side.runs)} runs ended after {epochs:.3g}: the schedule had not ended, and "
                "final accuracies are after different numbers of samples; write train.stop_at_target=false.",
            )


def _ended_early(record: Record) -> bool:
    planned, used = record.number("train.epochs"), record.metrics.get("epoch")
    limited = record.number("train.max_updates") is not None
    return planned is not None and used is not None and not limited and used < planned * (1 - 1e-6)


def _rate(pair: BaselinePair, tried: Mapping[MethodRuns, int], tuned: str | None) -> Iterator[Flag]:
    if tuned == RATE:
        return  # tuning has checked that both sides have equally many trials
    of_method, of_baseline = tried[pair.method], tried[pair.baseline]
    if of_method != of_baseline:
        yield Flag(
            "rate",
            f"{RATE} was tried at {of_method} values for {pair.method.accel} and at {of_baseline} for "
            f"{pair.baseline.accel}: more trials favour a side; try as many for both, then compare with --tune {RATE}.",
        )


def _settings(pair: BaselinePair, tuned: str | None, declared: bool, store: Sequence[str]) -> Iterator[Flag]:
    method, baseline = pair.method, pair.baseline
    (key, *others) = [key for key in pair.differing if key != tuned] or [""]
    if key:
        values = [
            f"{key} is {method.settings[key]} for {method.accel} and {baseline.settings[key]} for {baseline.accel}",
            *(f"{key} {method.settings[key]} and {baseline.settings[key]}" for key in others),
        ]
        advice = ", as declared" if declared else f"; {train_baseline(method, store, baseline.number(BATCH))}"
        yield Flag("settings", f"{', '.join(values)}, so more than the method differs{advice}.")


def _selection(pair: BaselinePair) -> Iterator[Flag]:
    if any(record.tags.get("selected_on") == "test" for side in pair.sides for record in side.runs):
        yield Flag("selection", SELECTED_ON_TEST)


SELECTED_ON_TEST = (
    "selected_on=test: best accuracy was selected on the test set, so it flatters; "
    "data.val_fraction=0.0833333 avoids that."
)


def _unfinished(pair: BaselinePair) -> Iterator[Flag]:
    for side in pair.sides:
        seeds = {run.seed for run in side.ended}  # those that diverged would diverge again
        broken = [run for run in side.unfinished if run.seed not in seeds]
        if side.runs and broken:
            every = len(side.unfinished) + len(side.runs)
            yield Flag(
                "unfinished",
                f"{counted(broken)} of {every} runs of {side.label}, not averaged: those that finished may be "
                "the lucky ones; find out why, or train those seeds again.",
            )


def _busy(pair: BaselinePair) -> Iterator[Flag]:
    for side in pair.sides:
        taken = {record.seed: record.metrics.get(_CONTENDED, 0.0) for record in side.runs}
        busy = {seed: share for seed, share in taken.items() if share > _MAX_CONTENDED}
        if busy:
            seeds = ",".join(map(str, busy))
            yield Flag(
                "busy",
                f"{_CONTENDED}: other programs took up to {max(busy.values()):.0%} of the processor time of "
                f"{len(busy)} of {len(side.runs)} runs of {side.label}, so its speed is too low; train them again on "
                f"a quiet machine: seed={seeds}.",
            )


def _numbers(seeds: Sequence[int]) -> str:
    """`0 to 4` or `0, 3, 7`."""
    if len(seeds) > 2 and list(seeds) == list(range(seeds[0], seeds[-1] + 1)):
        return f"{seeds[0]} to {seeds[-1]}"
    return ", ".join(map(str, seeds))


def _listed(commits: set[str]) -> str:
    return " and ".join(short(commit) for commit in sorted(commits))
