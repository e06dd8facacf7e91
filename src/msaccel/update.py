"""One update, in a fixed order: accumulate → reduce → guard → clip → apply.

Words: a micro-batch goes through one forward and backward pass; a window is the micro-batches that one rank feeds to
one update. The gradient of a micro-batch of n samples is weighted by n / b, b its nominal size, so a full micro-batch
has weight 1, and the mean is the weighted sum over micro-batches and ranks, divided once by the sum of weights.

With operators of our own the graphs are without control flow: guard and optimizer are told whether to act. A branch
(`if`) costs LeNet's update some 60 µs, and with one MindSpore's CPU runtime does not find out, as it otherwise does in
the first calls, whether it is faster to run the kernels one after the other or to hand them to threads. Where a forward
pass changes parameters (batch norm) an update in one graph keeps the branch: without it MindSpore hands the optimizer
copies of the weights, which would move instead of them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import mindspore as ms
import numpy as np
from mindspore import Parameter, Tensor, nn, ops
from numpy.typing import NDArray

from msaccel.accel.accum.cell import Accumulator, Clear
from msaccel.devices.ranks import ALONE
from msaccel.gradient import Gradient
from msaccel.graph import Graph
from msaccel.guard import Guard, Policy
from msaccel.kernels import GlobalNorm, Scale
from msaccel.running_statistics import RunningStatistics
from msaccel.state import State, assign

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
        guard: a tensor that ends with [global gradient norm, largest norm of a part, 1 if applied else 0, share of
            parts clipped, loss scale, refusals in a row].
    """

    samples: tuple[int, ...]
    measured: tuple[Tensor, ...]
    guard: Tensor


class Apply(nn.Cell):
    """Unscale, guard, clip, apply.

    Inputs: gradients; factor, multiplied onto them; rate, the learning rate of this update (float32 scalars).
    Outputs: the six values of `Signals.guard` (6,).

    Args:
        branch: decide by control flow in any case.
    """

    def __init__(
        self, optimizer: nn.Optimizer, guard: Guard, clip: nn.Cell | None, scaled: bool, branch: bool = False
    ) -> None:
        super().__init__(auto_prefix=False)
        self.optimizer, self.guard, self.clip, self.scaled = optimizer, guard, clip, scaled
        self.global_norm, self.scale = GlobalNorm(), Scale()
        self.ours = getattr(optimizer, "ours", False) and not branch  # it can be told not to step

    def construct(self, gradients: tuple[Tensor, ...], factor: Tensor, rate: Tensor) -> Tensor:
        if self.scaled:
            gradients = self.scale(gradients, self.guard.divided(factor))
        norm = self.global_norm(gradients)
        known = ops.assign(self.optimizer.learning_rate, rate)
        clipped = applied = Tensor(0.0, ms.float32)
        if self.ours:
            if self.clip is not None:
                gradients, clipped = self.clip(gradients, norm)
            good, signals = self.guard.judge(norm, clipped)
            return ops.depend(signals, self.optimizer(gradients, ops.depend(good, known)))
        good, loss_scale = self.guard.asked(norm)
        if good:
            if self.clip is not None:
                gradients, clipped = self.clip(gradients, norm)
            applied = ops.depend(self.guard.one, self.optimizer(gradients))
            self.guard.applied()
        else:
            self.guard.refused()
        return ops.stack((norm, norm, applied, clipped, loss_scale, self.guard.in_a_row))


class Whole(Graph):
    """An update of a single micro-batch, in one graph."""

    def __init__(self, gradient: Gradient, apply: Apply) -> None:
        super().__init__()
        self.gradient, self.apply_gradients, self.guard = gradient, apply, apply.guard

    def construct(self, images: Tensor, labels: Tensor, one: Tensor, rate: Tensor) -> Tensor:
        loss, right, gradients = self.gradient(images, labels, self.guard.multiplied(one))
        return ops.concat((loss.reshape(1), right.reshape(1), self.apply_gradients(gradients, one, rate)))


class Accumulate(Graph):
    """One micro-batch of a window, its gradients added up."""

    def __init__(self, gradient: Gradient, accumulator: Accumulator, guard: Guard) -> None:
        super().__init__()
        self.gradient, self.accumulator, self.guard = gradient, accumulator, guard

    def construct(self, images: Tensor, labels: Tensor, weight: Tensor, first: Tensor) -> Tensor:
        loss, right, gradients = self.gradient(images, labels, self.guard.multiplied(weight))
        return ops.depend(ops.stack((loss, right)), self.accumulator(gradients, first))


class Close(Graph):
    """The end of all windows of an update: what was added up, here and on other ranks, is applied."""

    def __init__(self, accumulator: Accumulator, apply: Apply, reduce: nn.Cell | None) -> None:
        super().__init__()
        self.accumulator, self.apply_gradients, self.reduce = accumulator, apply, reduce

    def construct(self, factor: Tensor, rate: Tensor) -> Tensor:
        sums = self.accumulator.sums
        if self.reduce is not None:
            sums = self.reduce(sums)
        return self.apply_gradients(sums, factor, rate)


class Take(Graph):
    """The mean gradient of a part, unscaled, as tensors of its own, and last its global norm."""

    def __init__(self, accumulator: Accumulator, guard: Guard, reduce: nn.Cell | None) -> None:
        super().__init__()
        self.accumulator, self.guard, self.reduce = accumulator, guard, reduce
        self.global_norm, self.scale = GlobalNorm(), Scale()

    def construct(self, factor: Tensor) -> tuple[Tensor, ...]:
        sums = self.accumulator.sums
        if self.reduce is not None:
            sums = self.reduce(sums)
        gradients = self.scale(sums, self.guard.divided(factor))
        return (*gradients, self.global_norm(gradients))


class Agree(Graph):
    """The guard over all parts.

    Args:
        gather: the norms of all parts (parts,) from those of this process, or None where they are all here.

    Inputs: the norms of the parts here. Outputs: whether all may step; [mean, largest norm, 0 or 1, loss scale,
    refusals in a row].
    """

    def __init__(self, guard: Guard, gather: nn.Cell | None = None) -> None:
        super().__init__()
        self.guard, self.gather = guard, gather

    def construct(self, *norms: Tensor) -> tuple[Tensor, Tensor]:
        every = ops.stack(norms)
        if self.gather is not None:
            every = self.gather(every)
        good, scale = self.guard.asked(every.mean())
        if good:
            self.guard.applied()
        else:
            self.guard.refused()
        return good, ops.stack((every.mean(), every.max(), good.astype(ms.float32), scale, self.guard.in_a_row))


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
        self.statistics = statistics or RunningStatistics(network, [0], ALONE)
        self.reduce = reduce
        self.batch_size, self.single, self.undivided = batch_size, single, undivided
        self.optimizer, self.clip = optimizer, clip
        self.extra_forwards = 0  # samples that went through forward passes beside those of the gradients
        self.one = Tensor(1.0, ms.float32)
        self.gradient = Gradient(network, optimizer.parameters, label_smoothing)
        self.guard = Guard(policy)
        own = any(not parameter.requires_grad for parameter in network.get_parameters())  # that a forward pass changes
        scaled = not single or policy.scaled or lower_precision
        apply = Apply(optimizer, self.guard, clip, scaled, branch=single and own)
        if single:
            self.whole = Whole(self.gradient, apply).set_train()
        else:
            self.accumulator = Accumulator(optimizer.parameters)
            self.accumulate = Accumulate(self.gradient, self.accumulator, self.guard).set_train()
            self.close = Close(self.accumulator, apply, reduce).set_train()
            self.clear = Clear(self.accumulator)

    def report(self) -> dict[str, float]:
        """Further metrics by name, since the last report."""
        return {}

    def state(self) -> list[Parameter]:
        """Parameters beyond the network's that the next update depends on; a window's sums it replaces."""
        return [*self.optimizer.get_parameters(), *self.guard.get_parameters()]

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
        lr = Tensor(rate, ms.float32)
        here = windows_here(ranks)
        if self.single:
            (((images, labels),),) = here.values()
            measured = self.whole(Tensor(images), Tensor(labels), self.one, lr)
            return Signals((len(labels),), (measured,), measured)
        samples, signals = self.add_up(here)
        factor = 1.0 / (len(ranks) if self.undivided else self.weight(ranks))
        return Signals(samples, signals, self.close(Tensor(factor, ms.float32), lr))

    def add_up(self, windows: Mapping[int, Window]) -> tuple[tuple[int, ...], tuple[Tensor, ...]]:
        """Adds up the gradients of some ranks' windows; the samples and the signals of each micro-batch."""
        samples: list[int] = []
        measured: list[Tensor] = []
        for rank, window in windows.items():
            with self.statistics.of(rank):
                for images, labels in window:
                    weight, first = Tensor(len(labels) / self.batch_size, ms.float32), Tensor(not samples)
                    measured.append(self.accumulate(Tensor(images), Tensor(labels), weight, first))
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
