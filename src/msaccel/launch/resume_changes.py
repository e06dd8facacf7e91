"""Which settings of a job may change when it is resumed: those that do not change its numbers."""

from __future__ import annotations

import copy
from functools import reduce
from typing import Any

from msaccel.accel import chosen, label
from msaccel.config.groups import GROUPS
from msaccel.config.overrides import keys_set_by
from msaccel.schema import Config, DecaySettings, StepSettings, leaves, logged

TAGS = "tracking.tags"
# Keys that affect neither what is computed nor its numbers: where and how often results are written, and where the same
# data are stored (their digest is compared).
MAY_CHANGE = (
    "tracking.every",
    "tracking.patience_minutes",
    "tracking.name",
    TAGS,
    "tracking.note",
    "tracking.system_metrics",
    "checkpoint.every_updates",
    "checkpoint.every_minutes",
    "checkpoint.keep",
    "data.root",
    "data.cache",
    "data.workers",
)
# Keys of the machine and of this start; they are never compared.
OF_THIS_START = (
    "tracking.uri",
    "device.server_rank",
    "device.master",
    "device.timeout_s",
    "sweep.resume",
    "sweep.retries",
    "sweep.job_timeout_s",
)
# Decided as a job starts, or without influence on what it computes.
_OF_EVERY_START = ("device.simulate", "tracking.artifacts", "resume")
BUDGET = ("train.epochs", "train.max_updates")


def apply_overrides(original: Config, composed: Config, typed: list[str]) -> tuple[Config, dict[str, str], list[str]]:
    """The settings of a resumed job: those of its run, with the overrides given besides `resume=`.

    Args:
        original: the settings of the run.
        composed: what Hydra made of `typed`; only the keys in `typed` count.
        typed: overrides.

    Returns:
        The settings to go on with; the keys among them that are recorded, with their new values; a sentence for each
        key that may not change.
    """
    wanted, recorded, refusals = copy.deepcopy(original), {}, []
    before, now = values(original), values(composed)
    for key in dict.fromkeys(TAGS if key.startswith(f"{TAGS}.") else key for key in keys_set_by(typed)):
        if key == "resume":
            continue
        if key == "experiment":
            refusals.append(
                "experiment= cannot be combined with resume=, since the run has its settings already; leave it out."
            )
            continue
        was, new = before.get(key, "not set"), now.get(key)
        if was == new:
            continue
        reason = _reason(original, key) if key in before else "would make it another job"
        if reason:
            refusals.append(
                f"{key}: {logged(was)} → {logged(new)} {reason}; leave {key} out, or start a job of its own."
            )
            continue
        *path, name = key.split(".")
        setattr(reduce(getattr, path, wanted), name, new)
        if key not in OF_THIS_START:
            recorded[key] = logged(new)
    return wanted, recorded, refusals


def differences(then: Config, now: Config) -> tuple[list[str], dict[str, str]]:
    """Compares the settings that a sweep's job began with and those that the same command composes now.

    Returns:
        A sentence for each key that may not change; those that may and have, with their new values.
    """
    before, after = values(then), values(now)
    refusals, recorded = [], {}
    for key in dict.fromkeys([*before, *after]):
        was, new = logged(before.get(key, "not set")), logged(after.get(key, "not set"))
        if was == new or key in (*OF_THIS_START, *_OF_EVERY_START):
            continue
        if key in MAY_CHANGE:
            recorded[key] = new
        else:
            refusals.append(
                f"{key} was {was} when the sweep began and would be {new} now; put it back, or begin a new sweep "
                "without sweep.resume."
            )
    return refusals, recorded


def fixed_settings(config: Config) -> dict[str, str]:
    """The settings, as text by key, that must not change when a job is resumed."""
    free = (*MAY_CHANGE, *OF_THIS_START, *_OF_EVERY_START, *BUDGET)
    return {key: logged(value) for key, value in values(config).items() if key not in free}


def values(config: Config) -> dict[str, Any]:
    """Every key's value; for a group the chosen option."""
    chosen = {group: getattr(config, group).name for group in GROUPS}
    return {**chosen, "accel": label(config.accel), **{key: value for key, value, _ in leaves(config)}}


def _reason(original: Config, key: str) -> str:
    """Why a key may not change; empty if it may."""
    if key in MAY_CHANGE or key in OF_THIS_START:
        return ""
    if key not in BUDGET:
        return "would make it another job"
    for _, method, settings in chosen(original):
        if fixed := method.fixed_budget(settings):
            return fixed
    schedule = original.schedule
    has_lengths = isinstance(schedule, StepSettings) or schedule.warmup > 0
    if isinstance(schedule, DecaySettings) or (schedule.unit == "fraction" and has_lengths):
        return f"would have given other rates to updates that are made already (schedule={schedule.name})"
    return ""
