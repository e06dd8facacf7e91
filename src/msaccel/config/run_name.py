"""The name of a run: the user's, or its methods, what differs from the defaults of its options, and its seed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from typing import Any

from omegaconf import DictConfig, OmegaConf

from msaccel.accel import label
from msaccel.config.compose import from_overrides
from msaccel.config.groups import GROUPS
from msaccel.errors import on_one_line
from msaccel.files import CONF
from msaccel.schema import Config, parameters

# The most telling first. What is not here says where or how a job runs.
_TELLING = (
    *("accel.", "optimizer.", "schedule.", "train.", "precision", "loss_scale.", "model.", "data.", "kernels."),
    *("device.servers", "device.ranks_per_server", "device.threads"),
)
_IN_FULL = ("loss_scale.", "kernels.")  # `mode=dynamic` alone would not say whose mode
_PLACES = ("data.root", "data.cache", "data.workers")
_MOST = 4  # differences in a name
_LONGEST = 24  # characters of a value


def run_name(config: Config) -> str:
    """`clip lr=0.1 s0`; a run without any method is a `baseline`. A name that the user gives replaces all that."""
    if config.tracking.name:
        return config.tracking.name
    device = [] if config.device.name == "cpu" else [config.device.name]
    return " ".join([_label(config), *_options(config), *_differences(config), *device, f"s{config.seed}"])


def short_name(config: Config) -> str:
    """`clip s0`: before each line that a job prints."""
    return f"{_label(config)} s{config.seed}"


def _label(config: Config) -> str:
    is_baseline = not config.accel and config.loss_scale.mode == "none"
    return "baseline" if is_baseline else label(config.accel)


def changed(params: Mapping[str, str], options: Iterable[str]) -> dict[str, str]:
    """The parameters of a job, by key, that differ from those of its options (`model=mlp`) alone."""
    return {key: params[key] for key, usual in _usual(tuple(options)) if params.get(key, usual) != usual}


@cache  # composing takes a tenth of a second, and all jobs of a sweep may have the same options
def _usual(options: tuple[str, ...]) -> list[tuple[str, str]]:
    return list(parameters(from_overrides(options)).items())


def _options(config: Config) -> list[str]:
    """The non-default options that neither the label nor the name of the experiment shows."""
    chosen = {group: getattr(config, group).name for group in GROUPS if group != "device"}
    return [
        option
        for group, option in chosen.items()
        if option != default_options()[group] and option not in config.tracking.experiment
    ]


@cache
def default_options() -> dict[Any, Any]:
    """Each group and its default option, as in `conf/config.yaml`; composing them would take a tenth of a second."""
    listed: Any = OmegaConf.load(CONF / "config.yaml").defaults
    pairs = [(str(group), one) for entry in listed if isinstance(entry, DictConfig) for group, one in entry.items()]
    return {group: option for group, option in pairs if not group.startswith("override ")}


def _differences(config: Config) -> Iterator[str]:
    """`lr=0.1`: each key by its last part, or by the last two where another key ends like it."""
    options = [f"accel=[{','.join(config.accel) or 'none'}]", *(f"{g}={getattr(config, g).name}" for g in GROUPS)]
    params = parameters(config)
    found = [key for key in changed(params, options) if key.startswith(_TELLING) and not key.startswith(_PLACES)]
    found.sort(key=lambda key: next(place for place, prefix in enumerate(_TELLING) if key.startswith(prefix)))
    ends = Counter(key.split(".")[-1] for key in params)
    for key in found[:_MOST]:
        *_, last = path = key.split(".")
        short = last if ends[last] == 1 and not key.startswith(_IN_FULL) else ".".join(path[-2:])
        yield f"{short}={on_one_line(params[key], _LONGEST)}"
    if len(found) > _MOST:
        yield "…"
