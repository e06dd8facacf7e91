"""One update, in a fixed order: accumulate → reduce → finite check → transform → apply.

Words: a micro-batch goes through one forward and backward pass; a window is the micro-batches that one rank feeds to
one update. The gradient of a micro-batch of n samples is weighted by n / b, b its nominal size, so a full micro-batch
has weight 1, and the mean is the weighted sum over micro-batches and ranks, divided once by the sum of weights.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import mindspore as ms
import numpy as np
from mindspore import Parameter, Tensor, nn
from numpy.typing import NDArray

from msaccel.checkpoint.state import State, assign, by_name
from msaccel.distributed.collectives import BYTES
from msaccel.distributed.communicator import SINGLE_PROCESS
from msaccel.kernels import Outcome
from msaccel.kernels.graph import as_tensor
from msaccel.step.batch_norm import RunningStatistics
from msaccel.step.graphs import (
    AccumulateGradients,
    Accumulator,
    ApplyGradients,
    ClearSums,
    FinishWindow,
    Gradient,
    SingleBatchUpdate,
)
from msaccel.step.loss_scaler import LossScaler, Policy

if TYPE_CHECKING:
    from msaccel.step.stage import EvaluationWeights

MicroBatch = tuple[NDArray[np.float32], NDArray[np.int32]]
Window = Sequence[MicroBatch]


@dataclass(frozen=True)
class Elsewhere:
    """The window of a rank in another process; here only the sizes of its micro-batches are known."""

    sizes: tuple[int, ...]


Windows = Sequence[Window | Elsewhere]


@dataclass(frozen=True)
class Signals:
    """What one update measured; the tensors stay on the device until they are fetched.

    Attributes:
        samples: samples of each micro-batch of this process.
        measured: for each micro-batch a tensor that starts with [mean loss, correctly classified].
        outcome: a tensor that ends with the fields of an `Outcome`, in their order.
        exchanged: bytes of gradients and weights that a rank has handed to the others; where ranks differ, the most.
    """

    samples: tuple[int, ...]
    measured: tuple[Tensor, ...]
    outcome: Tensor
    exchanged: int

    def fetch(self, fetched: NDArray[np.float32] | None = None) -> Outcome:
        """The outcome of the update, read from the device unless its tensor was `fetched` already."""
        values = self.outcome.asnumpy() if fetched is None else fetched
        return Outcome(*values[-len(Outcome._fields) :].tolist())


@dataclass(frozen=True)
class UpdateOptions:
    """How updates are made, whatever their kind.

    Attributes:
        reduction: `mean` over the samples of an update; `sum`: a rank's mean gradients are added without dividing, and
            ranks are averaged.
        policy: what happens when a gradient is not finite.
        transform: turns the update's gradient into another one, such as a clipped one; None for no transform.
        lower_precision: gradients may come in float16.
        reduce: sums tensors over the processes that share a mean; None where this process has all ranks.
        statistics: running statistics of the network's batch normalisation, by rank; None: there is a single rank.
        label_smoothing: of the training loss, 0 for none.
        loss_scaler: that of another update, to share its state; None: the update gets its own.
    """

    reduction: str = "mean"
    policy: Policy = field(default_factory=Policy)
    transform: nn.Cell | None = None
    lower_precision: bool = False
    reduce: nn.Cell | None = None
    statistics: RunningStatistics | None = None
    label_smoothing: float = 0.0
    loss_scaler: LossScaler | None = None


class Update:
    """One update of a network's weights from the windows of all ranks.

    Args:
        network: maps images (n, C, H, W) to logits (n, classes).
        optimizer: over the network's trainable parameters, or over the subset that the update changes.
        batch_size: b, the nominal size of a micro-batch.
        single: an update is never more than one micro-batch, so nothing has to be added up.
        options: how the update is made.
    """

    def __init__(
        self,
        network: nn.Cell,
        optimizer: nn.Optimizer,
        batch_size: int,
        *,
        single: bool = True,
        options: UpdateOptions = UpdateOptions(),
    ) -> None:
        self.statistics = options.statistics or RunningStatistics(network, [0], SINGLE_PROCESS)
        self.batch_size, self.single, self.options = batch_size, single, options
        self.optimizer = optimizer
        self.size = sum(parameter.size for parameter in optimizer.parameters)
        self.extra_forwards = 0  # forward passes, in samples, beyond the three that a sample's gradient costs
        self.one = Tensor(1.0, ms.float32)
        self.gradient = Gradient(network, optimizer.parameters, options.label_smoothing)
        self.loss_scaler = LossScaler(options.policy) if options.loss_scaler is None else options.loss_scaler
        scaled = not single or options.policy.scaled or options.lower_precision
        apply_gradients = ApplyGradients(optimizer, self.loss_scaler, options.transform, scaled)
        if single:
            self.single_batch = SingleBatchUpdate(self.gradient, apply_gradients).set_train()
        else:
            self.accumulator = Accumulator(optimizer.parameters)
            self.accumulate = AccumulateGradients(self.gradient, self.accumulator, self.loss_scaler).set_train()
            self.finish_window = FinishWindow(self.accumulator, apply_gradients, options.reduce).set_train()
            self.clear = ClearSums(self.accumulator)

    def report(self) -> dict[str, float]:
        """Further metrics by name, since the last report."""
        return {}

    def evaluation_weights(self) -> EvaluationWeights | None:
        """The weights to evaluate instead of those that the optimizer steps, if it has any."""
        offer = getattr(self.optimizer, "evaluation_weights", None)
        return offer() if offer else None

    def state_dict(self) -> dict[str, Parameter]:
        """Parameters beyond the network's that the next update depends on; not a window's sums, which it replaces."""
        return by_name([*self.optimizer.get_parameters(), *self.loss_scaler.get_parameters()])

    def load_state_dict(self, state: State) -> None:
        """Restores the values of `state_dict`; `CheckpointError` if they belong to another job."""
        assign(self.state_dict().values(), state)

    def averaged(self) -> AbstractContextManager[None]:
        """Inside the block the network has weights that all ranks share, afterwards this process's own again."""
        return nullcontext()  # here all ranks have the same weights

    def at(self, done: int, of: int) -> Update:
        """The object that makes the next update when `done` of the job's `of` updates have been made."""
        return self

    def compile(self, images: NDArray[np.float32], labels: NDArray[np.int32]) -> None:
        """Builds the graphs for micro-batches of this shape, without running them."""
        number, micro_batch = Tensor(1.0, ms.float32), (Tensor(images), Tensor(labels))
        if self.single:
            self.single_batch.compile(*micro_batch, number, number)
        else:
            self.compile_sums(*micro_batch)
            self.finish_window.compile(number, number)

    def compile_sums(self, images: Tensor, labels: Tensor) -> None:
        """Builds the graphs of `add_up` for micro-batches of this shape."""
        self.accumulate.compile(images, labels, Tensor(1.0, ms.float32), Tensor(True))
        if self.statistics.comm.world_size > 1:  # else there are always samples here
            self.clear.compile()

    def __call__(self, ranks: Windows, rate: float) -> Signals:
        """Updates the weights once.

        Args:
            ranks: for each rank its micro-batches of at most `batch_size` samples; some ranks may have none.
            rate: the learning rate.
        """
        lr = as_tensor(rate)
        here = windows_here(ranks)
        if self.single:
            (((images, labels),),) = here.values()
            measured = self.single_batch(as_tensor(images), as_tensor(labels), self.one, lr)
            return Signals((len(labels),), (measured,), measured, 0)
        samples, measured = self.add_up(here)
        outcome = self.finish_window(as_tensor(self.factor(ranks)), lr)
        return Signals(samples, measured, outcome, self.exchanged(len(ranks)))

    def exchanged(self, ranks: int) -> int:
        """Bytes that each of so many ranks hands to the others, so that all have the mean of their gradients."""
        return BYTES * self.size if ranks > 1 else 0

    def add_up(self, windows: Mapping[int, Window]) -> tuple[tuple[int, ...], tuple[Tensor, ...]]:
        """Adds up the gradients of some ranks' windows; returns the samples and the signals of each micro-batch."""
        samples: list[int] = []
        measured: list[Tensor] = []
        for rank, window in windows.items():
            with self.statistics.of(rank):
                for images, labels in window:
                    weight, first = as_tensor(len(labels) / self.batch_size), as_tensor(not samples)
                    measured.append(self.accumulate(as_tensor(images), as_tensor(labels), weight, first))
                    samples.append(len(labels))
        if not samples:
            self.clear()
        return tuple(samples), tuple(measured)

    def factor(self, ranks: Windows) -> float:
        """The factor that turns the sums over all ranks into the gradient of an update."""
        return 1.0 / (len(ranks) if self.options.reduction == "sum" else self.weight(ranks))

    def weight(self, ranks: Windows) -> float:
        """The sum of the weights of some ranks' micro-batches."""
        return sum(count / self.batch_size for window in ranks for count in sizes(window))


def windows_here(ranks: Windows) -> dict[int, Window]:
    """The windows of this process, by rank."""
    return {rank: window for rank, window in enumerate(ranks) if not isinstance(window, Elsewhere)}


def sizes(window: Window | Elsewhere) -> tuple[int, ...]:
    return window.sizes if isinstance(window, Elsewhere) else tuple(len(labels) for _, labels in window)
