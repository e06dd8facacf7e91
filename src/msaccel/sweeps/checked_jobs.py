"""The jobs of a sweep, all checked before the first one starts."""

from __future__ import annotations

import logging
import math
from collections.abc import Sequence
from itertools import islice
from pathlib import Path

from hydra._internal.core_plugins.basic_sweeper import BasicSweeper
from hydra.core.global_hydra import GlobalHydra
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override, ValueType
from omegaconf import DictConfig, open_dict, read_write

from msaccel.config.bounds import bad_values
from msaccel.config.compose import composing, typed
from msaccel.errors import ConfigError
from msaccel.launch.lost_with_folder import lost_with
from msaccel.schema import Config
from msaccel.sweeps import search
from msaccel.sweeps.folder import SweepFolder

MAX_JOBS = 10_000
_log = logging.getLogger(__name__)


def checked_jobs(config: DictConfig) -> tuple[list[Config], list[str]]:
    """The jobs of a sweep, and a sentence for each thing that is wrong in any of them, without repetitions.

    A sweeper that chooses its jobs one after the other (optuna) has none yet; they are checked as they start.

    Raises:
        ConfigError: the values cannot be enumerated.
        OSError: the sweep's folder cannot be looked into.
    """
    folder = config.hydra.sweep.dir
    sweep = SweepFolder(Path(folder))
    if lost := lost_with("hydra.sweep.dir", sweep.path, config):
        return [], [lost]
    if not sweep.record():
        if sweep.files.holds_others_files():
            return [], [f"hydra.sweep.dir={folder} holds other files; write a folder that is new or empty."]
        if sweep.files.is_assigned() or sweep.files.is_held("launcher"):
            return [], [sweep.files.why_occupied("hydra.sweep.dir")]
    if search.chooses(config.hydra):
        return [], []
    loader = GlobalHydra.instance().config_loader()
    reasons: dict[str, None] = {}
    jobs: list[Config] = []
    with composing():
        overrides = OverridesParser.create(config_loader=loader).parse_overrides(list(config.hydra.overrides.task))
        if reason := too_many_jobs(overrides):
            return [], [reason]
        lines = BasicSweeper.split_arguments(overrides, max_batch_size=None)[0]
    if not lines:
        return [], ["the sweep has no jobs, since a range(...) or glob(...) in it is empty; write the values."]
    _log.info("sweep: checks its %d jobs before the first one starts", len(lines))
    for line in lines:
        try:
            with composing():
                composed = loader.load_sweep_config(config, line)
            with read_write(composed), open_dict(composed):
                del composed["hydra"]
            jobs.append(typed(composed))
            reasons.update(dict.fromkeys(bad_values(jobs[-1])))
        except ConfigError as error:
            reasons[str(error)] = None
    return jobs, list(reasons)


def too_many_jobs(overrides: Sequence[Override]) -> str:
    """A sentence if a sweep over these values has no end or more than MAX_JOBS jobs, else an empty text.

    The jobs are counted without making a list of them: `seed=range(0,1e12)` is short to type.

    Raises:
        OmegaConfBaseException, HydraException: the values cannot be enumerated.
    """
    for override in overrides:
        if override.value_type == ValueType.INTERVAL_SWEEP:
            return f"{override.input_line} is for hydra/sweeper=optuna; write single values, or range(START,STOP,STEP)."
    sizes = {
        override.key_or_group: sum(1 for _ in islice(override.sweep_iterator(), MAX_JOBS + 1))
        for override in overrides
        if override.is_sweep_override() and override.value_type != ValueType.GLOB_CHOICE_SWEEP
    }
    if math.prod(sizes.values()) <= MAX_JOBS:
        return ""
    named = " × ".join(f"{key} ({size if size <= MAX_JOBS else 'more'})" for key, size in sizes.items())
    return f"the sweep has more than {MAX_JOBS} jobs, {named}; write fewer values, or several sweeps."
