"""Builds a job's network, updates and stages from its configuration."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import mindspore as ms
import numpy as np
from mindspore import Parameter, nn

from msaccel import kernels, models
from msaccel.accel import chosen, steps
from msaccel.config.derived import products
from msaccel.data.dataset import Dataset, EpochSamples, SameEveryEpoch
from msaccel.distributed.collectives import Reduce, group
from msaccel.distributed.communicator import Communicator
from msaccel.errors import ConfigError, UserError
from msaccel.models.precision import compute_in
from msaccel.schema import Config, DeviceSettings
from msaccel.step.batch_norm import RunningStatistics
from msaccel.step.frozen import FreezingUpdates
from msaccel.step.layers import layers_of
from msaccel.step.loss_scaler import NO_LIMIT, Policy
from msaccel.step.stage import EvaluationWeights, Stage
from msaccel.step.update import Update, UpdateOptions
from msaccel.training import optimizers
from msaccel.training.plan import Plan


def prepare_device(device: DeviceSettings, seed: int) -> None:
    """Sets MindSpore's process-wide context; before anything is built."""
    ms.set_context(mode=ms.GRAPH_MODE)
    ms.set_device("CPU" if device.simulated else device.target)
    # One thread walks through a graph and starts its kernels one after the other. With more threads (MindSpore's own
    # choice from 12 on), MindSpore would time twenty calls, from the 31st on, to decide whether to distribute kernels,
    # and a job's speed would depend on those timings.
    ms.set_context(runtime_num_threads=max(1, device.threads - 1), inter_op_parallel_num=1)
    ms.set_seed(seed)
    if device.target == "GPU" and not device.simulated:
        _float32_and_repeatable()


def _float32_and_repeatable() -> None:
    """What MindSpore's defaults for GPUs are not: convolutions of float32 in float32, and the same sums in each run."""
    precision, tuning = ms.device_context.gpu.op_precision, ms.device_context.gpu.op_tuning
    precision.conv_allow_tf32(False)
    precision.matmul_allow_tf32(False)
    tuning.conv_dgrad_algo("algo_1")  # cuDNN's algorithms without atomic additions
    tuning.conv_wgrad_algo("algo_1")


def build_network(config: Config, train: Dataset | None = None) -> nn.Cell:
    """The network as the methods change it, in the job's precision and with its kernels; its parameters are float32.

    Args:
        train: the training set, from which some networks take weights; None where all weights will be read from a file.

    Raises:
        UserError: `kernels.use=onednn` or `precision=bf16` is not available here.
    """
    try:
        kernels.use_backend(kernels.select_backend(config.kernels.use, config.device.on_cpu, products(config)))
    except kernels.KernelError as error:
        raise UserError(str(error)) from error
    network = models.build(config.model)
    if train is not None and hasattr(network, "initialise_from"):
        # From the first samples in file order, not augmented: the same for all ranks.
        network.initialise_from(train.batch(np.arange(min(len(train), network.initialised_from)))[0])
    for _, method, settings in chosen(config):
        method.change_network(settings, network)
    return compute_in(network, config.precision)


def summary(network: nn.Cell, config: Config) -> str:
    """`lenet with 61,684 parameters in 8 tensors, input 1 × 32 × 32, 10 classes`."""
    weights = network.trainable_params()
    size = " × ".join(map(str, config.model.input_shape()))
    return (
        f"{config.model.name} with {sum(weight.size for weight in weights):,} parameters in {len(weights)} tensors, "
        f"input {size}, {config.model.classes} classes"
    )


@dataclass(frozen=True)
class Builder:
    """What the updates of a job are built from.

    Attributes:
        network: the network that they train, with its initial weights set.
        config: the job's settings.
        comm: all ranks of the job.
        statistics: the network's running statistics, by rank.
        folder: of the job; dimension reduction writes snapshots and its matrix there.
        some: the weights that the updates move, in their order; None: all.
        full: the update of all weights; updates of only some weights share its state.
    """

    network: nn.Cell
    config: Config
    comm: Communicator
    statistics: RunningStatistics
    folder: Path
    some: tuple[Parameter, ...] | None = None
    full: Update | None = None

    @property
    def weights(self) -> list[Parameter]:
        """The weights that the updates move."""
        return self.network.trainable_params() if self.some is None else list(self.some)

    @property
    def rank(self) -> int | None:
        """This process's rank; None if it has all ranks."""
        return self.comm.rank if self.comm.world_size > 1 else None

    def optimizer(self) -> nn.Optimizer:
        undecayed, outer = models.undecayed(self.network), models.outer(self.network)
        partial = self.full is not None
        optimizer = optimizers.build(self.weights, self.config.optimizer, undecayed, outer, partial)
        if self.full:
            optimizers.share_state(optimizer, self.full.optimizer)
        return optimizer

    def plain_options(self, sharing: Sequence[int]) -> UpdateOptions:
        """How every update is made, without any method; `sharing` are the ranks whose gradients become one mean."""
        return UpdateOptions(
            policy=loss_scale_policy(self.config),
            lower_precision=self.config.precision == "fp16",
            reduce=self.reduce(sharing),
            statistics=self.statistics,
            label_smoothing=self.config.train.label_smoothing,
            loss_scaler=self.full.loss_scaler if self.full else None,
        )

    def options(self, sharing: Sequence[int]) -> UpdateOptions:
        """The options of `plain_options`, with the slots around the reduction filled as `accel` says."""
        options = self.plain_options(sharing)
        for _, method, settings in chosen(self.config):
            if (reduction := method.reduction(settings)) != "mean":
                options = replace(options, reduction=reduction)
            if transform := method.transform(settings, self.weights):
                options = replace(options, transform=transform)
        return options

    def reduce(self, sharing: Sequence[int]) -> Reduce | None:
        """A cell that sums gradients over the processes of these ranks, this one included."""
        if self.rank is None or len(sharing) == 1:
            return None
        shapes = [weight.shape for weight in self.weights]
        everyone = len(sharing) == self.comm.world_size
        return Reduce(shapes, self.config.device.bucket_mb, None if everyone else group(sharing))

    def update(self, updates: int) -> Update | FreezingUpdates:
        """The object that makes the updates of a stage of `updates` updates."""
        layers, full = layers_of(self.network), self.one_update(updates)
        for _, method, settings in chosen(self.config):
            if schedule := method.frozen_layers(settings, self.config.seed, len(layers)):
                schedule(0, updates)  # refuses a job that is too short before it begins
                return FreezingUpdates(full, schedule, lambda frozen: self.without(layers[:frozen], full, updates))
        return full

    def without(self, layers: Sequence[Sequence[Parameter]], full: Update, updates: int) -> Update:
        """An update that leaves these layers alone and shares the state of `full`, the update of all weights."""
        frozen = {id(weight) for layer in layers for weight in layer}
        rest = tuple(weight for weight in self.weights if id(weight) not in frozen)
        return replace(self, some=rest, full=full).one_update(updates)

    def one_update(self, updates: int) -> Update:
        """The update of this builder's weights: a method's own, or the plain one."""
        config = self.config
        for _, method, settings in chosen(config):
            if update := method.build_update(settings, self, updates):
                return update
        everyone = range(config.device.ranks)
        single = steps(config) * len(everyone) == 1
        options = self.options(everyone)
        return Update(self.network, self.optimizer(), config.train.batch_size, single=single, options=options)

    def stages(self, plan: Plan) -> list[Stage]:
        """The stages of the job: a method's own, or those of one update with the budgets of the plan.

        Raises:
            ConfigError: the job is too short for a method or the optimizer.
        """
        stepped = sum(budget.updates for budget in plan.budgets if budget.rate is None)  # by the optimizer
        if stepped and (refusal := self.config.optimizer.too_few_updates(stepped)):
            raise ConfigError(refusal)
        for _, method, settings in chosen(self.config):
            if stages := method.stages(settings, self, plan.budgets):
                return stages
        update = self.update(plan.total_updates)
        return [Stage(budget, update) for budget in plan.budgets]

    def epoch_samples(self, plan: Plan, train: Dataset) -> EpochSamples:
        """What the epochs of the job train on: the training set, or what a method makes of it."""
        for _, method, settings in chosen(self.config):
            if samples := method.epoch_samples(settings, train, plan.epochs):
                return samples
        return SameEveryEpoch(train)

    def method_metrics(self) -> dict[str, str]:
        """The fields of `Metrics` that the methods log, each with its name in MLflow."""
        return dict(pair for _, method, _ in chosen(self.config) for pair in method.metrics)

    def evaluation_weights(self, plan: Plan, stages: Sequence[Stage]) -> EvaluationWeights | None:
        """The weights that are evaluated instead of the trained ones, if a method or the optimizer has any."""
        weights, updates = self.network.trainable_params(), plan.total_updates
        found = [method.evaluation_weights(settings, weights, updates) for _, method, settings in chosen(self.config)]
        return next(filter(None, [*found, *(stage.update.evaluation_weights() for stage in stages)]), None)


def loss_scale_policy(config: Config) -> Policy:
    scale = config.loss_scale
    if scale.mode == "none":
        return Policy(limit=1 if config.train.on_nonfinite == "stop" else NO_LIMIT)
    return Policy(scale.max_consecutive, scale.init, scale.growth_interval if scale.mode == "dynamic" else None)
