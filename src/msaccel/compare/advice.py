"""The command that trains a missing baseline, made from the parameters of the method's runs."""

from __future__ import annotations

import re
import shlex
from functools import cache

from msaccel.compare.groups import MethodRuns, global_batch
from msaccel.config.bounds import LONGEST
from msaccel.config.checks import refusals, without_effect
from msaccel.config.compose import from_overrides
from msaccel.config.groups import GROUPS
from msaccel.config.overrides import in_quotes
from msaccel.errors import UserError
from msaccel.tracking.start import parameters

BATCH = "train.batch_size"
_UPDATES, _SIMULATE = "train.max_updates", "device.simulate"
# Of the method, or of where and how a job is started; `_SIMULATE` is as it was resolved.
_LEFT_OUT = (
    *("accel", "loss_scale.", "seed", "resume", "checkpoint.", "sweep.", "data.cache", "data.workers"),
    *("tracking.uri", "tracking.artifacts", "tracking.every", "tracking.patience_minutes"),
    *("device.server_rank", "device.master", "device.rank_table", "device.timeout_s", _SIMULATE),
)


def train_baseline(method: MethodRuns, batch: float | None = None) -> str:
    """What to train, as the end of a sentence: a command, unless the parameters are not those of a job.

    Args:
        batch: the micro-batch of the baseline; None for that of the method.
    """
    run = method.runs[-1]
    wanted = dict(run.params)
    if batch:
        wanted[BATCH] = f"{batch:.0f}"
        updates = run.number(_UPDATES)
        if updates:  # as many samples
            ranks = (run.number("device.servers") or 1) * (run.number("device.ranks_per_server") or 1)
            wanted[_UPDATES] = f"{updates * global_batch(run) / (batch * ranks):.0f}"
    overrides = _overrides(tuple(wanted.items()), run.simulated)
    if not overrides:
        return "train the same with accel=none and as many seeds"
    seeds = ",".join(str(run.seed) for run in method.runs)
    return (
        f"train it: {shlex.join(['python', 'run.py', *(['-m'] if ',' in seeds else []), *overrides, f'seed={seeds}'])}"
    )


@cache  # composing takes a tenth of a second, and all methods of a set may miss the same baseline
def _overrides(wanted: tuple[tuple[str, str], ...], simulated: bool) -> list[str]:
    """The overrides of a job without methods that has these parameters; none where `run.py` would refuse them."""
    params = dict(wanted)
    groups = {group: params.get(f"{group}.name", "") for group in GROUPS}
    if any(option not in GROUPS[group] for group, option in groups.items()):
        return []
    if any("${" in text or len(text) > LONGEST for text in params.values()):
        return []
    try:
        chosen = [f"{group}={option}" for group, option in groups.items()]
        usual, default = parameters(from_overrides(chosen)), parameters(from_overrides(()))
        overrides = [
            "accel=none",
            *(f"{group}={option}" for group, option in groups.items() if option != default[f"{group}.name"]),
            *([f"{_SIMULATE}=always"] if simulated else []),
            *(f"{key}={_quoted(params[key])}" for key, text in usual.items() if _differs(key, text, params)),
        ]
        config = from_overrides(overrides)
    except UserError:
        return []
    return [] if refusals(config) or without_effect(config, overrides) else overrides


def _differs(key: str, usual: str, params: dict[str, str]) -> bool:
    return params.get(key, usual) != usual and not key.startswith(_LEFT_OUT)


def _quoted(text: str) -> str:
    """A parameter in the grammar of overrides."""
    plain = re.fullmatch(r"[\w.+-]+|\[[\w.+, -]*\]", text)
    return text if plain else in_quotes(text)
