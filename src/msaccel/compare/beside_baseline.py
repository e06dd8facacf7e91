"""A run compared with the baseline runs there are, in a few lines of text for the end of a job and the run's page."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from statistics import fmean

from mlflow import MlflowClient

from msaccel.compare.advice import baseline_command, same_again
from msaccel.compare.baselines import BaselinePair, equal_pairs
from msaccel.compare.groups import ComparisonSet, group
from msaccel.compare.measures import FINAL, values
from msaccel.compare.method_runs import MethodRuns, is_baseline
from msaccel.compare.runs import Record, find
from msaccel.config.overrides import uri_option

_SEEDS = range(5)  # on each side: docs/comparing.md says what so many seeds can tell
_MAX_PAIRS = 3


def beside_baseline(client: MlflowClient, run_id: str, store: Sequence[str] = (), *, with_commands: bool = True) -> str:
    """Compares a finished run with its baseline, the finished runs of its experiment that differ only by the method, or
    gives the command that trains this baseline.

    Args:
        store: overrides that name the store in commands, where it is not the default one.
        with_commands: whether to add commands that would tell more; composing them takes a second.

    Returns:
        Lines of text; commands stand on lines of their own, indented. Nothing for a run that has no final accuracy.
    """
    experiment = client.get_experiment(client.get_run(run_id).info.experiment_id).name
    return text(run_id, experiment, find(client, experiment), store, with_commands=with_commands)


def text(
    run_id: str, experiment: str, records: Sequence[Record], store: Sequence[str] = (), *, with_commands: bool = True
) -> str:
    """What `beside_baseline` returns, from all runs of an experiment."""
    for found in group(records):
        for method in found.methods:
            if any(run.run_id == run_id and FINAL.read(run) is not None for run in method.runs):
                differences, pairs = _differences(method, found)
                more = _what_tells(method, pairs, experiment, store) if with_commands else []
                return "\n".join([*differences, *more])
    return ""


def _differences(method: MethodRuns, found: ComparisonSet) -> tuple[list[str], list[BaselinePair]]:
    every = equal_pairs(found, method)
    mine = [pair for pair in every if all(FINAL.read(run) is not None for side in pair.sides for run in side.runs)]
    return [_difference(pair, method) for pair in mine[:_MAX_PAIRS]], mine


def _what_tells(method: MethodRuns, pairs: list[BaselinePair], experiment: str, store: Sequence[str]) -> list[str]:
    if pairs:
        return _more_seeds(pairs[0], experiment, store)
    if is_baseline(method):
        return ["a baseline; the same command with accel=accum, for example, trains a method to compare with it"]
    lead = f"no baseline at hand: {experiment} has no run without the method that is otherwise equal; train it"
    command = baseline_command(method, [run.seed for run in method.ended], store=store)
    return [f"{lead}:", f"  {command}"] if command else [f"{lead} with accel=none"]


def _difference(pair: BaselinePair, method: MethodRuns) -> str:
    """`+0.31 points against the baseline (same micro-batch): 98.12% (n = 1) against 97.81% (n = 1)`."""
    own, other = (list(values(side, FINAL).values()) for side in pair.sides)
    difference = f"{100 * (fmean(own) - fmean(other)):+.2f} points against" if own and other else "against"
    whose = f"{difference} the" if method is pair.method else f"{pair.method.label}: {difference} this"
    return f"{whose} baseline ({pair.name}): {' against '.join(map(_accuracy, pair.sides))}"


def _accuracy(side: MethodRuns) -> str:
    """`98.12% (n = 1)`, or `98.12% (trained 4 of 5)`."""
    found, many = list(values(side, FINAL).values()), len(side.trained)
    count = f"n = {many}" if many == side.attempts else f"trained {many} of {side.attempts}"
    return f"{FINAL.number_format.format(fmean(found))} ({count})" if found else count


def _more_seeds(pair: BaselinePair, experiment: str, store: Sequence[str]) -> list[str]:
    """The commands that tell whether the difference is more than chance."""
    commands = []
    for side in (pair.baseline, pair.method):
        missing = sorted({*_SEEDS} - {run.seed for run in side.ended})[: max(0, len(_SEEDS) - side.attempts)]
        commands += [same_again(side, missing, store)] if missing else []
    commands.append(shlex.join(["python", "-m", "msaccel", "compare", "--experiment", experiment, *uri_option(store)]))
    least = min(pair.method.attempts, pair.baseline.attempts)
    if least >= len(_SEEDS):
        lead = "with intervals and a verdict:"
    else:
        lead = "one run decides nothing; this would:" if least == 1 else f"n = {least} misses most; more seeds tell:"
    return [lead, *(f"  {command}" for command in commands if command)]
