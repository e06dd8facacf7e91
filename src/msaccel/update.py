"""One update, in a fixed order: accumulate → reduce → guard → clip → apply.

Words: a micro-batch goes through one forward and backward pass; a window is the micro-batches that one rank feeds to
one update. The gradient of a micro-batch of n samples is weighted by n / b, b its nominal size, so a full micro-batch
has weight 1, and the mean is the weighted sum over micro-batches and ranks, divided once by the sum of weights.

The graphs hold the guard as control flow (`if`). It costs nothing: with it MindSpore's CPU runtime runs the kernels
of a small network one after the other instead of handing each to a thread, which is 1.5 times faster for LeNet.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import mindspore as ms
import numpy as np
from mindspore import Parameter, Tensor, nn, ops
from numpy.typing import NDArray

from msaccel.accel.accum.cell import Accumulator
from msaccel.gradient import Gradient, global_norm, scale
from msaccel.guard import Guard, Policy

MicroBatch = tuple[NDArray[np.float32], NDArray[np.int32]]
Window = Sequence[MicroBatch]


@dataclass(frozen=True)
class Signals:
    """What one update measured; the tensors stay on the device until somebody asks.

    Attributes:
        samples: samples of each micro-batch.
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
    Outputs: the six values of `Signals.guard`.
    """

    def __init__(self, optimizer: nn.Optimizer, guard: Guard, clip: nn.Cell | None, scaled: bool) -> None:
        super().__init__(auto_prefix=False)
        self.optimizer, self.guard, self.clip, self.scaled = optimizer, guard, clip, scaled

    def construct(self, gradients: tuple[Tensor, ...], factor: Tensor, rate: Tensor) -> tuple[Tensor, ...]:
        if self.scaled:
            gradients = scale(gradients, factor / self.guard.scale)
        norm = global_norm(gradients)
        loss_scale = self.guard.scale * 1
        good = self.guard.allows(norm)
        ops.assign(self.optimizer.learning_rate, rate)
        clipped = Tensor(0.0, ms.float32)
        if good:
            if self.clip is not None:
                gradients, clipped = self.clip(gradients, norm)
            self.optimizer(gradients)
            self.guard.applied()
        else:
            self.guard.refused()
        return norm, norm, good.astype(ms.float32), clipped, loss_scale, self.guard.in_a_row.astype(ms.float32)


class Whole(nn.Cell):
    """An update of a single micro-batch, in one graph."""

    def __init__(self, gradient: Gradient, apply: Apply) -> None:
        super().__init__(auto_prefix=False)
        self.gradient, self.apply_gradients, self.guard = gradient, apply, apply.guard

    def construct(self, images: Tensor, labels: Tensor, one: Tensor, rate: Tensor) -> Tensor:
        loss, right, gradients = self.gradient(images, labels, one * self.guard.scale)
        return ops.stack((loss, right, *self.apply_gradients(gradients, one, rate)))


class Accumulate(nn.Cell):
    """One micro-batch of a window, its gradients added up."""

    def __init__(self, gradient: Gradient, accumulator: Accumulator, guard: Guard) -> None:
        super().__init__(auto_prefix=False)
        self.gradient, self.accumulator, self.guard = gradient, accumulator, guard

    def construct(self, images: Tensor, labels: Tensor, weight: Tensor, first: Tensor) -> Tensor:
        loss, right, gradients = self.gradient(images, labels, weight * self.guard.scale)
        return ops.depend(ops.stack((loss, right)), self.accumulator(gradients, first))


class Close(nn.Cell):
    """The end of all windows of an update: what was added up is applied."""

    def __init__(self, accumulator: Accumulator, apply: Apply) -> None:
        super().__init__(auto_prefix=False)
        self.accumulator, self.apply_gradients = accumulator, apply

    def construct(self, factor: Tensor, rate: Tensor) -> Tensor:
        return ops.stack(self.apply_gradients(self.accumulator.sums, factor, rate))


class Take(nn.Cell):
    """The mean gradient of a part, unscaled, as tensors of its own, and last its global norm."""

    def __init__(self, accumulator: Accumulator, guard: Guard) -> None:
        super().__init__(auto_prefix=False)
        self.accumulator, self.guard = accumulator, guard

    def construct(self, factor: Tensor) -> tuple[Tensor, ...]:
        gradients = scale(self.accumulator.sums, factor / self.guard.scale)
        return (*gradients, global_norm(gradients))


class Agree(nn.Cell):
    """The guard over all parts. Inputs: their norms. Outputs: whether all may step; [mean, largest norm, 0 or 1]."""

    def __init__(self, guard: Guard) -> None:
        super().__init__(auto_prefix=False)
        self.guard = guard

    def construct(self, *norms: Tensor) -> tuple[Tensor, Tensor]:
        every = ops.stack(norms)
        good = self.guard.allows(every.mean())
        scale = self.guard.scale * 1
        if good:
            self.guard.applied()
        else:
            self.guard.refused()
        in_a_row = self.guard.in_a_row.astype(ms.float32)
        return good, ops.stack((every.mean(), every.max(), good.astype(ms.float32), scale, in_a_row))


class Update:
    """One update of a network's weights from the windows of all ranks of this process.

    Args:
        network: maps images (n, C, H, W) to logits (n, classes).
        optimizer: over the network's trainable parameters.
        batch_size: b, the nominal size of a micro-batch.
        single: an update is never more than one micro-batch, so nothing has to be added up.
        undivided: `sum` of accumulation: a rank's mean gradients are added without dividing; ranks are averaged.
        policy: what happens when a gradient is not finite.
        clip: bounds the gradient of the update, or None.
        lower_precision: gradients may come in float16.
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
    ) -> None:
        self.batch_size, self.single, self.undivided = batch_size, single, undivided
        self.optimizer, self.clip = optimizer, clip
        self.extra_forwards = 0  # samples that went through forward passes beside those of the gradients
        self.gradient = Gradient(network, optimizer.parameters)
        self.guard = Guard(policy)
        apply = Apply(optimizer, self.guard, clip, scaled=not single or policy.scaled or lower_precision)
        if single:
            self.whole = Whole(self.gradient, apply).set_train()
        else:
            self.accumulator = Accumulator(optimizer.parameters)
            self.accumulate = Accumulate(self.gradient, self.accumulator, self.guard).set_train()
            self.close = Close(self.accumulator, apply).set_train()

    def report(self) -> dict[str, float]:
        """Further metrics by name, since the last report."""
        return {}

    def state(self) -> list[Parameter]:
        """Parameters beyond the network's that the next update depends on."""
        sums = () if self.single else self.accumulator.sums
        return [*self.optimizer.get_parameters(), *self.guard.get_parameters(), *sums]

    def compile(self, images: NDArray[np.float32], labels: NDArray[np.int32]) -> None:
        """Builds the graphs for micro-batches of this shape, without running them."""
        number, micro_batch = Tensor(1.0, ms.float32), (Tensor(images), Tensor(labels))
        if self.single:
            self.whole.compile(*micro_batch, number, number)
        else:
            self.accumulate.compile(*micro_batch, number, Tensor(True))
            self.close.compile(number, number)

    def __call__(self, ranks: Sequence[Window], rate: float) -> Signals:
        """Updates the weights once.

        Args:
            ranks: for each rank its micro-batches of at most `batch_size` samples; some ranks may have none.
            rate: the learning rate.
        """
        lr = Tensor(rate, ms.float32)
        window = [micro_batch for rank in ranks for micro_batch in rank]
        if self.single:
            ((images, labels),) = window
            measured = self.whole(Tensor(images), Tensor(labels), Tensor(1.0, ms.float32), lr)
            return Signals((len(labels),), (measured,), measured)
        measured, weight = self.add_up(window)
        factor = 1.0 / (len(ranks) if self.undivided else weight)
        return Signals(sizes(window), measured, self.close(Tensor(factor, ms.float32), lr))

    def add_up(self, window: Window) -> tuple[tuple[Tensor, ...], float]:
        """Adds up the gradients of some micro-batches; what each measured, and the sum of their weights."""
        weights = [count / self.batch_size for count in sizes(window)]
        measured = tuple(
            self.accumulate(Tensor(images), Tensor(labels), Tensor(weight, ms.float32), Tensor(position == 0))
            for position, ((images, labels), weight) in enumerate(zip(window, weights, strict=True))
        )
        return measured, sum(weights)


def sizes(window: Window) -> tuple[int, ...]:
    return tuple(len(labels) for _, labels in window)
