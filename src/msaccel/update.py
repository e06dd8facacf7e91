"""One update, in a fixed order: accumulate → reduce → guard → clip → apply.

Words: a micro-batch goes through one forward and backward pass; a window is the micro-batches of one update. The
gradient of a micro-batch of n samples is weighted by n / b, b its nominal size, so a full micro-batch has weight 1,
and the window's mean is the weighted sum divided once by the sum of weights, whatever the last window lacks.

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

from msaccel.accel.accum import Settings as AccumSettings
from msaccel.accel.accum.cell import Accumulator

MicroBatch = tuple[NDArray[np.float32], NDArray[np.int32]]


@dataclass(frozen=True)
class Signals:
    """What one update measured; the tensors stay on the device until somebody asks.

    Attributes:
        samples: samples of each micro-batch.
        measured: for each micro-batch a tensor that starts with [mean loss, correctly classified].
        guard: a tensor that ends with [global gradient norm, 1 if applied else 0].
    """

    samples: tuple[int, ...]
    measured: tuple[Tensor, ...]
    guard: Tensor


class Gradient(nn.Cell):
    """Loss, accuracy and gradients of one micro-batch.

    Inputs: images (n, C, H, W) float32, labels (n,) int32, weight: a float32 scalar the gradients are multiplied by.
    Outputs: mean loss, number of correctly classified samples (both float32), gradients in the parameters' order.
    """

    def __init__(self, network: nn.Cell, parameters: Sequence[Parameter]) -> None:
        super().__init__(auto_prefix=False)
        self.network = network.set_grad()
        self.differentiate = ops.value_and_grad(self.forward, None, parameters, has_aux=True)

    def forward(self, images: Tensor, labels: Tensor, weight: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        logits = self.network(images)
        loss = ops.cross_entropy(logits, labels)
        return loss * weight, loss, logits

    def construct(self, images: Tensor, labels: Tensor, weight: Tensor) -> tuple[Tensor, Tensor, tuple[Tensor, ...]]:
        (_, loss, logits), gradients = self.differentiate(images, labels, weight)
        return loss, correct(logits, labels), gradients


def correct(logits: Tensor, labels: Tensor) -> Tensor:
    """How many of the labels (n,) are the largest of their logits (n, classes); float32 scalar."""
    return ops.equal(logits.argmax(1).astype(ms.int32), labels).astype(ms.float32).sum()


class Apply(nn.Cell):
    """Guard and apply: the optimizer steps only on gradients that are finite.

    The norm serves as the finite check, so a gradient whose square leaves float32 (beyond 1.8e19) counts as not
    finite. After a refusal `stop` applies nothing any more, so the weights stay those of the last good update until
    the loop looks; `skip` goes on with the next update.

    Inputs: gradients; factor, multiplied onto them; rate, the learning rate of this update (float32 scalars).
    Outputs: global norm of the gradients after the factor, and 1.0 if they were applied, 0.0 if not.
    """

    def __init__(self, optimizer: nn.Optimizer, scaled: bool, on_nonfinite: str) -> None:
        super().__init__(auto_prefix=False)
        self.optimizer = optimizer
        self.scaled = scaled
        self.stop = on_nonfinite == "stop"
        self.refused = Parameter(Tensor(0, ms.int32), name="refused_updates", requires_grad=False)

    def construct(self, gradients: tuple[Tensor, ...], factor: Tensor, rate: Tensor) -> tuple[Tensor, Tensor]:
        if self.scaled:
            gradients = scale(gradients, factor)
        norm = self.global_norm(gradients)
        good = ops.isfinite(norm)
        if self.stop:
            good = ops.logical_and(good, ops.equal(self.refused, 0))
        ops.assign(self.optimizer.learning_rate, rate)
        if good:
            self.optimizer(gradients)
        else:
            ops.assign_add(self.refused, Tensor(1, ms.int32))
        return norm, good.astype(ms.float32)

    def global_norm(self, gradients: tuple[Tensor, ...]) -> Tensor:
        squares: tuple[Tensor, ...] = ()
        for gradient in gradients:
            # Rows in float32, then float64: one float32 sum over 3 million elements is wrong by a thousandth.
            squares = squares + ((gradient * gradient).sum(-1).astype(ms.float64).sum(),)
        return ops.sqrt(ops.stack(squares).sum()).astype(ms.float32)


def scale(gradients: tuple[Tensor, ...], factor: Tensor) -> tuple[Tensor, ...]:
    scaled: tuple[Tensor, ...] = ()
    for gradient in gradients:
        scaled = scaled + (gradient * factor,)
    return scaled


class Whole(nn.Cell):
    """An update of a single micro-batch, in one graph."""

    def __init__(self, gradient: Gradient, apply: Apply) -> None:
        super().__init__(auto_prefix=False)
        self.gradient, self.apply_gradients = gradient, apply

    def construct(self, images: Tensor, labels: Tensor, one: Tensor, rate: Tensor) -> Tensor:
        loss, right, gradients = self.gradient(images, labels, one)
        norm, applied = self.apply_gradients(gradients, one, rate)
        return ops.stack((loss, right, norm, applied))


class Accumulate(nn.Cell):
    """One micro-batch of a window, its gradients added up."""

    def __init__(self, gradient: Gradient, accumulator: Accumulator) -> None:
        super().__init__(auto_prefix=False)
        self.gradient, self.accumulator = gradient, accumulator

    def construct(self, images: Tensor, labels: Tensor, weight: Tensor, first: Tensor) -> Tensor:
        loss, right, gradients = self.gradient(images, labels, weight)
        return ops.depend(ops.stack((loss, right)), self.accumulator(gradients, first))


class Close(nn.Cell):
    """The end of a window: what was added up is applied."""

    def __init__(self, accumulator: Accumulator, apply: Apply) -> None:
        super().__init__(auto_prefix=False)
        self.accumulator, self.apply_gradients = accumulator, apply

    def construct(self, factor: Tensor, rate: Tensor) -> Tensor:
        norm, applied = self.apply_gradients(self.accumulator.sums, factor, rate)
        return ops.stack((norm, applied))


class Update:
    """One update of a network's weights from the micro-batches of a window.

    Args:
        network: maps images (n, C, H, W) to logits (n, classes).
        optimizer: over the network's trainable parameters.
        batch_size: b, the nominal size of a micro-batch.
        accum: how micro-batches are accumulated; None: a window is one micro-batch.
        on_nonfinite: `stop` or `skip`, see `Apply`.
    """

    def __init__(
        self,
        network: nn.Cell,
        optimizer: nn.Optimizer,
        batch_size: int,
        accum: AccumSettings | None = None,
        on_nonfinite: str = "stop",
    ) -> None:
        self.batch_size = batch_size
        self.accum = accum
        gradient = Gradient(network, optimizer.parameters)
        apply = self.apply = Apply(optimizer, scaled=accum is not None, on_nonfinite=on_nonfinite)
        if accum is None:
            self.whole = Whole(gradient, apply).set_train()
        else:
            self.accumulator = Accumulator(optimizer.parameters)
            self.accumulate = Accumulate(gradient, self.accumulator).set_train()
            self.close = Close(self.accumulator, apply).set_train()

    def state(self) -> list[Parameter]:
        """Parameters beyond the network's and the optimizer's that the next update depends on."""
        return [self.apply.refused, *(self.accumulator.sums if self.accum else ())]

    def compile(self, images: NDArray[np.float32], labels: NDArray[np.int32]) -> None:
        """Builds the graphs for micro-batches of this shape, without running them."""
        number, micro_batch = Tensor(1.0, ms.float32), (Tensor(images), Tensor(labels))
        if self.accum is None:
            self.whole.compile(*micro_batch, number, number)
        else:
            self.accumulate.compile(*micro_batch, number, Tensor(True))
            self.close.compile(number, number)

    def __call__(self, window: Sequence[MicroBatch], rate: float) -> Signals:
        """Updates the weights once.

        Args:
            window: micro-batches of at most `batch_size` samples, at least one.
            rate: the learning rate.
        """
        samples = tuple(len(labels) for _, labels in window)
        lr = Tensor(rate, ms.float32)
        if self.accum is None:
            ((images, labels),) = window
            measured = self.whole(Tensor(images), Tensor(labels), Tensor(1.0, ms.float32), lr)
            return Signals(samples, (measured,), measured)
        weights = [count / self.batch_size for count in samples]
        measured = tuple(
            self.accumulate(Tensor(images), Tensor(labels), Tensor(weight, ms.float32), Tensor(position == 0))
            for position, ((images, labels), weight) in enumerate(zip(window, weights, strict=True))
        )
        factor = 1.0 if self.accum.reduction == "sum" else 1.0 / sum(weights)
        return Signals(samples, measured, self.close(Tensor(factor, ms.float32), lr))
