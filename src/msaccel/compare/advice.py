"""Commands that train a missing baseline, or more seeds, made from the parameters of runs."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from functools import cache

from msaccel.compare.groups import global_batch
from msaccel.compare.method_runs import MethodRuns
from msaccel.config.bounds import LONGEST
from msaccel.config.checks import refusals, without_effect
from msaccel.config.compose import from_overrides
from msaccel.config.groups import GROUPS
from msaccel.config.overrides import override
from msaccel.config.run_name import changed, default_options
from msaccel.errors import UserError
from msaccel.schema import OPERATIONAL

BATCH = "train.batch_size"
_UPDATES, _SIMULATE = "train.max_updates", "device.simulate"
_OF_METHOD = ("accel", "loss_scale.")
_EXPERIMENT = "tracking.experiment"  # which a run to compare with shares
_LEFT_OUT = (*OPERATIONAL, "seed", _SIMULATE)  # that one is the resolved value


def train_baseline(method: MethodRuns, store: Sequence[str], batch: float | None = None) -> str:
    """What to train, as the end of a sentence; with a command if the parameters are those of a job.

    Args:
        store, batch: as of `baseline_command`.
    """
    command = baseline_command(method, sorted({run.seed for run in method.ended or method.known}), batch, store)
    return f"train it: {command}" if command else "train the same with accel=none and as many seeds"


def baseline_command(
    method: MethodRuns, seeds: Sequence[int], batch: float | None = None, store: Sequence[str] = ()
) -> str:
    """The command that trains the baseline of a method; empty if the parameters are not those of a job.

    Args:
        batch: the micro-batch of the baseline; None for that of the method.
        store: overrides that name the store, where it is not the default one.
    """
    run = method.known[-1]
    wanted = dict(run.params)
    if batch := batch or run.number(BATCH):
        wanted[BATCH] = f"{batch:.0f}"
        updates = run.number(_UPDATES)
        if updates:  # as many samples
            ranks = (run.number("device.servers") or 1) * (run.number("device.ranks_per_server") or 1)
            wanted[_UPDATES] = f"{updates * global_batch(run) / (batch * ranks):.0f}"
    return _command(_overrides(tuple(wanted.items()), run.simulated, "none", (*_LEFT_OUT, *_OF_METHOD)), seeds, store)


def same_again(method: MethodRuns, seeds: Sequence[int], store: Sequence[str] = ()) -> str:
    """The command that trains a method, or a baseline, with other seeds; empty like `baseline_command`."""
    run = method.known[-1]
    return _command(_overrides(tuple(run.params.items()), run.simulated, method.accel, _LEFT_OUT), seeds, store)


def _command(overrides: Sequence[str], seeds: Sequence[int], store: Sequence[str]) -> str:
    if not overrides:
        return ""
    sweep = ["-m"] if len(seeds) > 1 else []
    seed = f"seed={','.join(map(str, seeds))}"
    return shlex.join(["python", "run.py", *sweep, *overrides, *store, seed])


@cache  # composing takes up to half a second, and all methods of a set may lack the same baseline
def _overrides(
    wanted: tuple[tuple[str, str], ...], simulated: bool, accel: str, left_out: tuple[str, ...]
) -> list[str]:
    """The overrides of a job with these methods (`accum+clip`) and these parameters, except for keys left out; empty
    if `run.py` would refuse them."""
    params = dict(wanted)
    groups = {group: params.get(f"{group}.name", "") for group in GROUPS}
    if any(option not in GROUPS[group] for group, option in groups.items()):
        return []
    if any("${" in text or len(text) > LONGEST for text in params.values()):
        return []
    method = f"accel={accel}" if "+" not in accel else f"accel=[{accel.replace('+', ',')}]"
    try:
        differing = changed(params, [method, *(f"{group}={option}" for group, option in groups.items())])
        kept = [key for key in differing if key == _EXPERIMENT or not key.startswith(left_out)]
        overrides = [
            method,
            *(f"{group}={option}" for group, option in groups.items() if option != default_options()[group]),
            *([f"{_SIMULATE}=always"] if simulated else []),
            *(override(key, differing[key]) for key in kept),
        ]
        config = from_overrides(overrides)
    except UserError:
        return []
    return [] if refusals(config) or without_effect(config, overrides) else overrides
