"""The update of a job, put together from what the configuration names."""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mindspore import Parameter, nn

from msaccel import kernels, models
from msaccel.accel import adasum, filling
from msaccel.accel.adasum.update import AdasumUpdate
from msaccel.accel.dimreduce.bfgs import Constants
from msaccel.accel.dimreduce.stages import Subspace
from msaccel.accel.dimreduce.update import SubspaceUpdate
from msaccel.config.derived import steps
from msaccel.distributed.collectives import Reduce, group
from msaccel.distributed.communicator import Communicator
from msaccel.errors import UserError
from msaccel.models.precision import compute_in
from msaccel.schema import Config
from msaccel.step.batch_norm import RunningStatistics
from msaccel.step.loss_scaler import NO_LIMIT, Policy
from msaccel.step.stage import Stage
from msaccel.step.update import Update
from msaccel.training import optimizers
from msaccel.training.plan import Plan


def build_network(config: Config) -> nn.Cell:
    """The network, computing in the job's precision and with its kernels; its parameters are float32.

    Raises:
        UserError: `kernels.use=onednn` is not available here.
    """
    try:
        kernels.use_backend(kernels.select_backend(config.kernels.use, config.device.on_cpu))
    except kernels.KernelError as error:
        raise UserError(str(error)) from error
    return compute_in(models.build(config.model), config.precision)


@dataclass(frozen=True)
class Builder:
    """What the updates of a job are built from.

    Attributes:
        network: whose weights they move; its values are final.
        config: the job's settings.
        comm: all ranks of the job.
        statistics: of the network, by rank.
        folder: of the job; dimension reduction writes snapshots and its matrix there.
    """

    network: nn.Cell
    config: Config
    comm: Communicator
    statistics: RunningStatistics
    folder: Path

    @property
    def rank(self) -> int | None:
        """Of this process among others; None if it has all ranks."""
        return self.comm.rank if self.comm.world_size > 1 else None

    def optimizer(self) -> nn.Optimizer:
        weights, undecayed = self.network.trainable_params(), models.undecayed(self.network)
        return optimizers.build(weights, self.config.optimizer, undecayed)

    def common(self, sharing: Sequence[int]) -> dict[str, Any]:
        """What every update is built with; `sharing` are the ranks whose gradients become one mean."""
        return {
            "policy": guard_policy(self.config),
            "lower_precision": self.config.precision != "fp32",
            "reduce": self.reduce(sharing),
            "statistics": self.statistics,
            "label_smoothing": self.config.train.label_smoothing,
        }

    def reduce(self, sharing: Sequence[int]) -> Reduce | None:
        """Sums gradients over the processes of these ranks, of which this is one."""
        if self.rank is None or len(sharing) == 1:
            return None
        shapes = [weight.shape for weight in self.network.trainable_params()]
        everyone = len(sharing) == self.comm.world_size
        return Reduce(shapes, self.config.device.bucket_mb, None if everyone else group(sharing))

    def update(self) -> Update:
        """The update of the network's weights, with every slot filled as `accel` says."""
        config, batch_size = self.config, self.config.train.batch_size
        accum, wanted = config.accel.get("accum"), config.accel.get("adasum")
        slots: dict[str, Any] = {
            "undivided": accum is not None and accum.reduction == "sum",
            "clip": build_clip(config, self.network.trainable_params()),
        }
        if wanted is None:
            everyone = range(config.device.ranks)
            single = steps(config) * len(everyone) == 1
            return Update(self.network, self.optimizer(), batch_size, single=single, **slots, **self.common(everyone))
        parts = adasum.parts(wanted, config.device)
        here = [number for number, part in enumerate(parts) if self.rank is None or self.rank in part]
        delta = wanted.apply == "delta"
        own = {number: self.optimizer() for number in (here if delta else here[:1])}
        weights = {id(parameter) for parameter in self.network.trainable_params()}
        for number, optimizer in own.items() if len(own) > 1 else ():  # one alone is called the same on all ranks
            for parameter in optimizer.get_parameters():
                if id(parameter) not in weights:
                    parameter.name = f"part{number}.{parameter.name}"
        common = self.common(parts[here[0]])
        return AdasumUpdate(self.network, list(own.values()), batch_size, parts, delta, self.rank, **slots, **common)

    def stages(self, plan: Plan) -> list[Stage]:
        """The stages of the job; dimension reduction has two."""
        wanted, budgets = self.config.accel.get("dimreduce"), plan.budgets
        if wanted is None:
            return [Stage(budgets[0], self.update())]
        subspace = Subspace(wanted, self.network, self.folder, self.comm)
        everyone = range(self.config.device.ranks)
        batch_size = self.config.train.batch_size
        inner = Update(self.network, self.optimizer(), batch_size, single=False, **self.common(everyone))
        trials = wanted.line_search.max_trials
        constants = Constants(wanted.rho, wanted.gamma, wanted.alpha, wanted.sigma, trials, wanted.weight_decay)
        clip = self.config.accel.get("clip")
        second = SubspaceUpdate(inner, subspace.layout, constants, clip.max_norm if clip else None, self.comm)
        *first, last = budgets
        return [*(subspace.first(budget, self.update()) for budget in first), subspace.second(last, second)]


def guard_policy(config: Config) -> Policy:
    scale = config.loss_scale
    if scale.mode == "none":
        return Policy(limit=1 if config.train.on_nonfinite == "stop" else NO_LIMIT)
    return Policy(scale.max_consecutive, scale.init, scale.growth_interval if scale.mode == "dynamic" else None)


def build_clip(config: Config, weights: Sequence[Parameter]) -> nn.Cell | None:
    """The method in the slot `clip`, whichever it is: `build` of its module `cell`; None where no method fills it."""
    name = filling("clip", config.accel)
    if name is None:
        return None
    cell: nn.Cell = importlib.import_module(f"msaccel.accel.{name}.cell").build(config.accel[name], weights)
    return cell
