"""A job that runs update by update in this process and logs nothing: for notebooks and measurements of speed.

Results come from `run.py`.
"""

from __future__ import annotations

import gc
import tempfile
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from itertools import count
from pathlib import Path

from mindspore import nn

from msaccel.config.checks import refusals
from msaccel.config.compose import from_overrides
from msaccel.data.dataset import DatasetSplits, EpochSamples
from msaccel.distributed.communicator import SINGLE_PROCESS
from msaccel.errors import ConfigError
from msaccel.schema import Config
from msaccel.step.batch_norm import RunningStatistics
from msaccel.step.stage import EvaluationWeights, Stage
from msaccel.step.update import Elsewhere, Window
from msaccel.training.builder import Builder, build_network, prepare_device
from msaccel.training.earlier_runs import fetch_from_runs
from msaccel.training.job import load_data
from msaccel.training.loader import Loader
from msaccel.training.plan import Plan


@dataclass(frozen=True)
class NotebookJob:
    """The parts of a job, and its samples in the order of the job.

    Attributes:
        epoch_samples: what its epochs train on.
        evaluation_weights: evaluated instead of the trained ones, or None.
        folder: where a job with dimension reduction writes snapshots and its matrix; it lasts as long as the job.
    """

    config: Config
    data: DatasetSplits
    epoch_samples: EpochSamples
    network: nn.Cell
    stages: list[Stage]
    plan: Plan
    evaluation_weights: EvaluationWeights | None
    folder: tempfile.TemporaryDirectory[str]

    def windows(self, stage: int = 0, epoch: int = 0) -> Iterator[list[Window | Elsewhere]]:
        """Yields the windows of all ranks for each update of a stage, epoch after epoch without end."""
        for number in count(epoch):
            loader = Loader(self.epoch_samples.of(number), SINGLE_PROCESS)
            with closing(loader.epoch(self.stages[stage].budget.sampler, number)) as updates:
                yield from updates


def build_job(*overrides: str) -> NotebookJob:
    """Puts a job together as `python run.py` would from these overrides; its ranks are virtual.

    Raises:
        UserError: it would be refused.
    """
    config = from_overrides(overrides)
    if reasons := refusals(config):
        raise ConfigError("\n".join(reasons))
    prepare_device(config.device, config.seed)
    folder = tempfile.TemporaryDirectory(prefix="msaccel-")
    fetch_from_runs(config, Path(folder.name))
    data = load_data(config)
    plan = Plan(config, len(data.train))
    gc.freeze()  # as in a job: otherwise every compilation's garbage collection scans all imports
    network = build_network(config, data.train)
    statistics = RunningStatistics(network, range(config.device.ranks), SINGLE_PROCESS)
    builder = Builder(network, config, SINGLE_PROCESS, statistics, Path(folder.name))
    stages, epoch_samples = builder.stages(plan), builder.epoch_samples(plan, data.train)
    weights = builder.evaluation_weights(plan, stages)
    return NotebookJob(config, data, epoch_samples, network, stages, plan, weights, folder)
