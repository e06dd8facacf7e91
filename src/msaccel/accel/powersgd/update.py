"""The update with PowerSGD: windows are added up as for the mean, and ranks exchange products of thin matrices."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import numpy as np
from mindspore import Parameter, Tensor, nn, ops
from numpy.typing import NDArray

from msaccel.accel import BuildContext
from msaccel.accel.powersgd import PowerSgdSettings
from msaccel.accel.powersgd.low_rank import LowRankSum, exchanged_numbers, largest_rank
from msaccel.checkpoint.state import State, array_like, by_name
from msaccel.distributed.collectives import BYTES, Reduce
from msaccel.errors import ConfigError, counted
from msaccel.kernels import Scale
from msaccel.kernels.finite_check import APPLIED
from msaccel.kernels.graph import Graph, as_tensor
from msaccel.step.graphs import Accumulator, ApplyGradients
from msaccel.step.update import Signals, Update, UpdateOptions, Windows, windows_here

_DONE = "powersgd.updates"


class FinishCompressed(Graph):
    """The end of an update's windows: sums over ranks by low rank, applies them, and remembers what they left out.

    Inputs: factor, which turns sums over all ranks into the gradient; rate (float32 scalars). Output: `Outcome` (6,).
    """

    def __init__(self, accumulator: Accumulator, low_rank: LowRankSum, apply_gradients: ApplyGradients) -> None:
        super().__init__()
        self.accumulator, self.low_rank, self.apply_gradients = accumulator, low_rank, apply_gradients
        self.loss_scaler, self.scale = apply_gradients.loss_scaler, Scale()

    def construct(self, factor: Tensor, rate: Tensor) -> Tensor:
        # Unscaled before errors are added: the loss scale may have been another one when they arose.
        shares = self.scale(self.accumulator.sums, self.loss_scaler.unscale_factor(factor))
        sums, errors, directions = self.low_rank(shares)
        outcome = self.apply_gradients(sums, self.loss_scaler.one, rate)  # scaled already
        applied = ops.greater(outcome[APPLIED], 0)
        for i in range(len(errors)):
            ops.assign(self.low_rank.errors[i], ops.select(applied, errors[i], self.low_rank.errors[i]))
            ops.assign(self.low_rank.directions[i], ops.select(applied, directions[i], self.low_rank.directions[i]))
        return outcome


class PowerSgdUpdate(Update):
    """One update of all ranks, with the plain mean at first and then with PowerSGD.

    Args:
        network, optimizer, batch_size, options: as for `Update`; `reduce` sums over all ranks.
        rank, seed, reduction, processes: as for `LowRankSum`.
        start: how many updates use the plain mean.
    """

    def __init__(
        self,
        network: nn.Cell,
        optimizer: nn.Optimizer,
        batch_size: int,
        *,
        rank: int,
        start: int,
        seed: int,
        reduction: Callable[[Sequence[Sequence[int]]], nn.Cell] | None,
        processes: int,
        options: UpdateOptions,
    ) -> None:
        super().__init__(network, optimizer, batch_size, single=False, options=options)
        self.start, self.done = start, 0
        self.low_rank = LowRankSum(optimizer.parameters, rank, seed, reduction, processes)
        self.bytes_exchanged = BYTES * exchanged_numbers(self.low_rank.shapes, rank)
        apply_gradients = ApplyGradients(optimizer, self.loss_scaler, options.transform, scaled=False)
        self.finish_compressed = FinishCompressed(self.accumulator, self.low_rank, apply_gradients).set_train()

    def state_dict(self) -> dict[str, Parameter]:
        done = Parameter(Tensor(np.array([self.done])), name=_DONE, requires_grad=False)
        return {**super().state_dict(), **by_name([done, *self.low_rank.errors, *self.low_rank.directions])}

    def load_state_dict(self, state: State) -> None:
        super().load_state_dict(state)
        self.done = int(array_like(state, _DONE, np.array([self.done]))[0])

    def compile(self, images: NDArray[np.float32], labels: NDArray[np.int32]) -> None:
        number = self.one
        self.compile_sums(Tensor(images), Tensor(labels))
        if self.start:
            self.finish_window.compile(number, number)
        self.finish_compressed.compile(number, number)

    def __call__(self, ranks: Windows, rate: float) -> Signals:
        self.done += 1
        if self.done <= self.start:
            return super().__call__(ranks, rate)
        samples, measured = self.add_up(windows_here(ranks))
        outcome = self.finish_compressed(as_tensor(self.factor(ranks)), as_tensor(rate))
        return Signals(samples, measured, outcome, self.bytes_exchanged)


def build(settings: PowerSgdSettings, builder: BuildContext, updates: int) -> PowerSgdUpdate:
    """The update of a job's stage of so many updates.

    Raises:
        ConfigError: it would compress nothing.
    """
    device, most = builder.config.device, largest_rank([w.shape for w in builder.network.trainable_params()])
    if most == 0:
        raise ConfigError("accel=powersgd has no matrix to make smaller in this network; write accel=none.")
    if settings.rank > most:
        raise ConfigError(
            f"accel.powersgd.rank={settings.rank} makes no gradient of this network smaller; "
            f"write accel.powersgd.rank={most} or less."
        )
    if settings.start >= updates:
        raise ConfigError(
            f"accel.powersgd.start={settings.start} leaves none of the {counted(updates, 'update')} to compress; "
            f"write accel.powersgd.start={updates - 1} or less."
        )
    real = builder.rank is not None
    return PowerSgdUpdate(
        builder.network,
        builder.optimizer(),
        builder.config.train.batch_size,
        rank=settings.rank,
        start=settings.start,
        seed=builder.config.seed,
        reduction=partial(Reduce, bucket_mb=device.bucket_mb) if real else None,
        processes=device.ranks if real else 1,
        options=builder.options(range(device.ranks)),
    )
