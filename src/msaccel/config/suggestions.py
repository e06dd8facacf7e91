"""Suggestions for keys that do not exist: names that other libraries use, and names that are spelt alike."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Iterator
from dataclasses import fields, is_dataclass
from typing import Any, get_args, get_type_hints

from msaccel.accel import methods
from msaccel.config.groups import GROUPS
from msaccel.files import CONF
from msaccel.schema import Config, ResNetSettings

MOST = 3  # candidates in a sentence
# What else a key is called, by the last part of its name; with what else must be written for it to mean the same.
ALIASES = {
    "lr": "optimizer.lr", "learning_rate": "optimizer.lr", "rate": "optimizer.lr",
    "wd": "optimizer.weight_decay", "decay": "optimizer.weight_decay", "weight_decay": "optimizer.weight_decay",
    "epoch": "train.epochs", "epochs": "train.epochs", "num_epochs": "train.epochs", "max_epochs": "train.epochs",
    "updates": "train.max_updates", "max_steps": "train.max_updates", "iterations": "train.max_updates",
    "bs": "train.batch_size", "batch": "train.batch_size", "batchsize": "train.batch_size",
    "seeds": "seed", "random_seed": "seed",
    "name": "tracking.name", "run_name": "tracking.name", "experiment_name": "tracking.experiment",
    "tag": "tracking.tags", "description": "tracking.note", "notes": "tracking.note",
    "workers": "data.workers", "num_workers": "data.workers",
    "cores": "device.threads", "cpus": "device.threads", "num_threads": "device.threads",
    **dict.fromkeys(("accumulation_steps", "gradient_accumulation_steps"), "accel=accum accel.accum.steps"),
    **dict.fromkeys(("clip_norm", "grad_clip", "max_grad_norm"), "accel=clip accel.clip.max_norm"),
    "warmup_epochs": "schedule.unit=epochs schedule.warmup",
    "num_classes": "model.classes", "log_every": "tracking.every",
    "dataset": "data", "network": "model", "net": "model", "arch": "model", "method": "accel", "opt": "optimizer",
    "scheduler": "schedule", "lr_scheduler": "schedule", "cuda": "device=gpu", "gpus": "device=gpu",
}  # fmt: skip

# How a value of a type is typed.
_WRITTEN = {
    int: r"[+-]?\d+",
    float: r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?",
    bool: r"true|false",
    list[float]: r"\[.+\]",
}


def write_instead(name: str, value: str = "") -> str:
    """What to write for a key that does not exist: `write optimizer.lr=0.1`, or up to three candidates.

    Args:
        value: the value that was typed; kept if it has the type of the only candidate.
    """
    found = list(dict.fromkeys(_candidates(name.lower())))[:MOST]
    if not found:
        return "python run.py --help lists all keys"
    if len(found) == 1 and "=" not in (key := found[0].split()[-1]) and _fits(value, key):
        return f"write {found[0]}={value}"
    *most, last = found
    return f"write {', '.join(most)}{' or ' if most else ''}{last}"


def choose(group: str, option: Any = None) -> str:
    """What to write for an option of a group: `write model=lenet`, or all options if this one does not exist."""
    options = list(_options(group))
    if isinstance(option, str) and option in options:
        return f"write {group}={option}"
    return f"write {group}= with {'one of ' + ', '.join(options) if options else 'the name of an option'}"


def known_keys() -> dict[str, str]:
    """Dotted names of all keys, each with the options that have it."""
    keys = {group: "" for group in (*GROUPS, "accel", "experiment")}
    for group, options in GROUPS.items():
        for option, schema in options.items():
            for name, _ in dotted(schema, f"{group}."):
                keys[name] = f"{keys[name]} or {group}={option}" if name in keys else f"{group}={option}"
    keys |= {name: "" for name, _ in dotted(Config, "") if name not in GROUPS}
    for name, method in methods().items():
        keys |= {key: f"accel={name}" for key, _ in dotted(method.settings, f"accel.{name}.")}
    return keys


def dotted(schema: type, prefix: str) -> Iterator[tuple[str, Any]]:
    """Dotted names and types of a schema's keys, those of nested schemas included."""
    kinds = get_type_hints(schema)
    for name in (item.name for item in fields(schema)):
        kind = kinds[name]
        if is_dataclass(kind):
            yield from dotted(kind, f"{prefix}{name}.") if name not in GROUPS else ()  # type: ignore[arg-type]
        else:
            yield f"{prefix}{name}", kind


def _candidates(name: str) -> list[str]:
    """Keys that may have been meant, the likeliest first."""
    group, last = name.split(".")[0], name.split(".")[-1]
    keys = [key for key in known_keys() if not key.endswith(".name")]
    inside = [key for key in keys if (key.startswith(f"{group}.") if "." in name else "." not in key)]
    if same := [key for key in inside if key.endswith(f".{last}")]:
        return same
    if last in ALIASES:
        return [ALIASES[last]]
    if same := [key for key in keys if key.replace(".", "_") == last]:
        return same
    if same := [key for key in keys if key.endswith(f".{last}")]:
        return same
    if settings := [f"{of}={name}" for of in (*GROUPS, "accel") if name in _options(of)] or resnet(name):
        return [settings] if isinstance(settings, str) else settings
    for some in (inside, keys):
        if close := difflib.get_close_matches(last, [key.split(".")[-1] for key in some], MOST):
            return [key for word in close for key in some if key.split(".")[-1] == word]
    return []


def _options(group: str) -> Iterable[str]:
    if group == "experiment":
        return sorted(path.stem for path in (CONF / "experiment").iterdir())
    return ["none", *methods()] if group == "accel" else GROUPS.get(group, ())


def resnet(name: str) -> str:
    """The settings of a ResNet that is named by its depth, as in other libraries; empty for any other name."""
    depths = ResNetSettings.__dataclass_fields__["depth"].metadata["range"].choices
    found = re.fullmatch(r"resnet[-_]?(\d{1,3})", name)
    return f"model=resnet50 model.depth={found[1]}" if found and int(found[1]) in depths else ""


def _fits(value: str, key: str) -> bool:
    """Whether a typed value is of the type of a key, or an option of a group."""
    if options := _options(key):
        return value in options
    kinds = {name: kind for schema, prefix in _schemas() for name, kind in dotted(schema, prefix)}
    of_one = [kind for kind in (kinds[key], *get_args(kinds[key])) if kind in _WRITTEN]  # `int | None` has two
    return bool(re.fullmatch(_WRITTEN[of_one[0]] if of_one else r"[\w./:@+-]+", value))


def _schemas() -> Iterator[tuple[type, str]]:
    """Every schema and the prefix of its keys."""
    yield Config, ""
    yield from ((schema, f"{group}.") for group, options in GROUPS.items() for schema in options.values())
    yield from ((method.settings, f"accel.{name}.") for name, method in methods().items())
