"""One update, in a fixed order: accumulate → reduce → guard → clip → apply.

Words: a micro-batch goes through one forward and backward pass; a window is the micro-batches that one rank feeds to
one update. The gradient of a micro-batch of n samples is weighted by n / b, b its nominal size, so a full micro-batch
has weight 1, and the mean is the weighted sum over micro-batches and ranks, divided once by the sum of weights.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import mindspore as ms
import numpy as np
from mindspore import Parameter, Tensor, nn
from numpy.typing import NDArray

from msaccel.checkpoint.state import State, assign
from msaccel.distributed.communicator import SINGLE_PROCESS
from msaccel.kernels.graph import as_tensor
from msaccel.step.accumulator import Accumulator, Clear
from msaccel.step.batch_norm import RunningStatistics
from msaccel.step.gradient import Gradient
from msaccel.step.graphs import Accumulate, Apply, Close, Whole
from msaccel.step.loss_scaler import LossScaler, Policy

MicroBatch = tuple[NDArray[np.float32], NDArray[np.int32]]
Window = Sequence[MicroBatch]


@dataclass(frozen=True)
class Elsewhere:
    """The window of a rank in another process; here only how many samples its micro-batches have is known."""

    sizes: tuple[int, ...]


Windows = Sequence[Window | Elsewhere]


@dataclass(frozen=True)
class Signals:
    """What one update measured; the tensors stay on the device until somebody asks.

    Attributes:
        samples: samples of each micro-batch of this process.
        measured: for each micro-batch a tensor that starts with [mean loss, correctly classified].
        loss_scaler: a tensor that ends with [global gradient norm, largest norm of a part, 1 if applied else 0, share
            of parts clipped, loss scale, refusals in a row].
    """

    samples: tuple[int, ...]
    measured: tuple[Tensor, ...]
    loss_scaler: Tensor


class Update:
    """One update of a network's weights from the windows of all ranks.

    Args:
        network: maps images (n, C, H, W) to logits (n, classes).
        optimizer: over the network's trainable parameters.
        batch_size: b, the nominal size of a micro-batch.
        single: an update is never more than one micro-batch, so nothing has to be added up.
        undivided: `sum` of accumulation: a rank's mean gradients are added without dividing; ranks are averaged.
        policy: what happens when a gradient is not finite.
        clip: bounds the gradient of the update, or None.
        lower_precision: gradients may come in float16.
        reduce: sums tensors over the processes that share a mean; None where this process has all ranks.
        statistics: of the network's batch normalisation, by rank.
        label_smoothing: of the training loss, 0 for none.
    """

    def __init__(
        self,
        network: nn.Cell,
        optimizer: nn.Optimizer,
        batch_size: int,
        *,
        single: bool = True,
        undivided: bool = False,
        policy: Policy = Policy(),
        clip: nn.Cell | None = None,
        lower_precision: bool = False,
        reduce: nn.Cell | None = None,
        statistics: RunningStatistics | None = None,
        label_smoothing: float = 0.0,
    ) -> None:
        self.statistics = statistics or RunningStatistics(network, [0], SINGLE_PROCESS)
        self.reduce = reduce
        self.batch_size, self.single, self.undivided = batch_size, single, undivided
        self.optimizer, self.clip = optimizer, clip
        self.extra_forwards = 0  # samples that went through forward passes beside those of the gradients
        self.one = Tensor(1.0, ms.float32)
        self.gradient = Gradient(network, optimizer.parameters, label_smoothing)
        self.loss_scaler = LossScaler(policy)
        own = any(not parameter.requires_grad for parameter in network.get_parameters())  # that a forward pass changes
        scaled = not single or policy.scaled or lower_precision
        apply = Apply(optimizer, self.loss_scaler, clip, scaled, branch=single and own)
        if single:
            self.whole = Whole(self.gradient, apply).set_train()
        else:
            self.accumulator = Accumulator(optimizer.parameters)
            self.accumulate = Accumulate(self.gradient, self.accumulator, self.loss_scaler).set_train()
            self.close = Close(self.accumulator, apply, reduce).set_train()
            self.clear = Clear(self.accumulator)

    def report(self) -> dict[str, float]:
        """Further metrics by name, since the last report."""
        return {}

    def state(self) -> list[Parameter]:
        """Parameters beyond the network's that the next update depends on; a window's sums it replaces."""
        return [*self.optimizer.get_parameters(), *self.loss_scaler.get_parameters()]

    def restore(self, state: State) -> None:
        """Goes on from the values of what `state` returned, by name; `CheckpointError` if they are of another job."""
        assign(self.state(), state)

    def compile(self, images: NDArray[np.float32], labels: NDArray[np.int32]) -> None:
        """Builds the graphs for micro-batches of this shape, without running them."""
        number, micro_batch = Tensor(1.0, ms.float32), (Tensor(images), Tensor(labels))
        if self.single:
            self.whole.compile(*micro_batch, number, number)
        else:
            self.accumulate.compile(*micro_batch, number, Tensor(True))
            self.close.compile(number, number)

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
            measured = self.whole(as_tensor(images), as_tensor(labels), self.one, lr)
            return Signals((len(labels),), (measured,), measured)
        samples, signals = self.add_up(here)
        factor = 1.0 / (len(ranks) if self.undivided else self.weight(ranks))
        return Signals(samples, signals, self.close(as_tensor(factor), lr))

    def add_up(self, windows: Mapping[int, Window]) -> tuple[tuple[int, ...], tuple[Tensor, ...]]:
        """Adds up the gradients of some ranks' windows; the samples and the signals of each micro-batch."""
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

    def weight(self, ranks: Windows) -> float:
        """The sum of the weights of some ranks' micro-batches."""
        return sum(count / self.batch_size for window in ranks for count in sizes(window))


def windows_here(ranks: Windows) -> dict[int, Window]:
    """The windows of this process, by rank."""
    return {rank: window for rank, window in enumerate(ranks) if not isinstance(window, Elsewhere)}


def sizes(window: Window | Elsewhere) -> tuple[int, ...]:
    return window.sizes if isinstance(window, Elsewhere) else tuple(len(labels) for _, labels in window)
