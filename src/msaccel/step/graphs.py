"""The graphs of an update: gradients of a micro-batch, their sum over a window, and what is done with the sum.

With operators of our own they are without control flow: guard and optimizer are told whether to act. A branch (`if`)
costs LeNet's update some 60 µs. Where a forward pass changes parameters (batch norm) an update in one graph keeps the
branch: without it MindSpore hands the optimizer copies of the weights, which would move instead of them.
"""

from __future__ import annotations

import mindspore as ms
from mindspore import Tensor, nn, ops

from msaccel.kernels import GlobalNorm, Scale
from msaccel.kernels.graph import Graph
from msaccel.step.accumulator import Accumulator
from msaccel.step.gradient import Gradient
from msaccel.step.loss_scaler import LossScaler


class Apply(nn.Cell):
    """Unscale, guard, clip, apply.

    Inputs: gradients; factor, multiplied onto them; rate, the learning rate of this update (float32 scalars).
    Outputs: the six values of `Signals.loss_scaler` (6,).

    Args:
        branch: decide by control flow in any case.
    """

    def __init__(
        self, optimizer: nn.Optimizer, loss_scaler: LossScaler, clip: nn.Cell | None, scaled: bool, branch: bool = False
    ) -> None:
        super().__init__(auto_prefix=False)
        self.optimizer, self.loss_scaler, self.clip, self.scaled = optimizer, loss_scaler, clip, scaled
        self.global_norm, self.scale = GlobalNorm(), Scale()
        self.fused = getattr(optimizer, "fused", False) and not branch  # it can be told not to step

    def construct(self, gradients: tuple[Tensor, ...], factor: Tensor, rate: Tensor) -> Tensor:
        if self.scaled:
            gradients = self.scale(gradients, self.loss_scaler.divided(factor))
        norm = self.global_norm(gradients)
        known = ops.assign(self.optimizer.learning_rate, rate)
        clipped = applied = Tensor(0.0, ms.float32)
        if self.fused:
            if self.clip is not None:
                gradients, clipped = self.clip(gradients, norm)
            good, signals = self.loss_scaler.judge(norm, clipped)
            return ops.depend(signals, self.optimizer(gradients, ops.depend(good, known)))
        good, loss_scale = self.loss_scaler.asked(norm)
        if good:
            if self.clip is not None:
                gradients, clipped = self.clip(gradients, norm)
            applied = ops.depend(self.loss_scaler.one, self.optimizer(gradients))
            self.loss_scaler.applied()
        else:
            self.loss_scaler.refused()
        return ops.stack((norm, norm, applied, clipped, loss_scale, self.loss_scaler.in_a_row))


class Whole(Graph):
    """An update of a single micro-batch, in one graph."""

    def __init__(self, gradient: Gradient, apply: Apply) -> None:
        super().__init__()
        self.gradient, self.apply_gradients, self.loss_scaler = gradient, apply, apply.loss_scaler

    def construct(self, images: Tensor, labels: Tensor, one: Tensor, rate: Tensor) -> Tensor:
        loss, right, gradients = self.gradient(images, labels, self.loss_scaler.multiplied(one))
        return ops.concat((loss.reshape(1), right.reshape(1), self.apply_gradients(gradients, one, rate)))


class Accumulate(Graph):
    """One micro-batch of a window, its gradients added up."""

    def __init__(self, gradient: Gradient, accumulator: Accumulator, loss_scaler: LossScaler) -> None:
        super().__init__()
        self.gradient, self.accumulator, self.loss_scaler = gradient, accumulator, loss_scaler

    def construct(self, images: Tensor, labels: Tensor, weight: Tensor, first: Tensor) -> Tensor:
        loss, right, gradients = self.gradient(images, labels, self.loss_scaler.multiplied(weight))
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

    def __init__(self, accumulator: Accumulator, loss_scaler: LossScaler, reduce: nn.Cell | None) -> None:
        super().__init__()
        self.accumulator, self.loss_scaler, self.reduce = accumulator, loss_scaler, reduce
        self.global_norm, self.scale = GlobalNorm(), Scale()

    def construct(self, factor: Tensor) -> tuple[Tensor, ...]:
        sums = self.accumulator.sums
        if self.reduce is not None:
            sums = self.reduce(sums)
        gradients = self.scale(sums, self.loss_scaler.divided(factor))
        return (*gradients, self.global_norm(gradients))


class Agree(Graph):
    """The guard over all parts.

    Args:
        gather: the norms of all parts (parts,) from those of this process, or None where they are all here.

    Inputs: the norms of the parts here. Outputs: whether all may step; [mean, largest norm, 0 or 1, loss scale,
    refusals in a row].
    """

    def __init__(self, loss_scaler: LossScaler, gather: nn.Cell | None = None) -> None:
        super().__init__()
        self.loss_scaler, self.gather = loss_scaler, gather

    def construct(self, *norms: Tensor) -> tuple[Tensor, Tensor]:
        every = ops.stack(norms)
        if self.gather is not None:
            every = self.gather(every)
        good, scale = self.loss_scaler.asked(every.mean())
        if good:
            self.loss_scaler.applied()
        else:
            self.loss_scaler.refused()
        return good, ops.stack((every.mean(), every.max(), good.astype(ms.float32), scale, self.loss_scaler.in_a_row))
