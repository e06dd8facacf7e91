"""The graphs of an update: gradients of a micro-batch, their sum over a window, and what is done with the sum.

With our own operators they have no control flow: the finite check and the optimizer are told whether to act. A branch
(`if`) costs LeNet's update some 60 µs. With MindSpore's operators a step must be what a result depends on
(`ops.depend`): in a branch, a call whose result nobody uses may be dropped.
"""

from __future__ import annotations

from collections.abc import Sequence

import mindspore as ms
from mindspore import Parameter, ParameterTuple, Tensor, nn, ops

from msaccel.kernels import Accumulate, CrossEntropy, GlobalNorm, Scale, current_backend, stack_outcome
from msaccel.kernels.graph import Graph
from msaccel.step.loss_scaler import LossScaler


class Gradient(nn.Cell):
    """Forward and backward pass.

    The loss is computed in float32 whatever the network computes in. It is multiplied by `factor` before the backward
    pass, so a loss scale protects small float16 gradients.

    Inputs: images (n, C, H, W) float32, labels (n,) int32, factor: a float32 scalar the gradients are multiplied by.
    Outputs: mean loss, number of correctly classified samples (both float32), gradients in the parameters' order.
    """

    def __init__(self, network: nn.Cell, parameters: Sequence[Parameter], label_smoothing: float = 0.0) -> None:
        super().__init__(auto_prefix=False)
        network.set_grad()
        self.loss = CrossEntropy(label_smoothing)
        self.network = network
        self.parameters = parameters
        self.differentiate = ops.value_and_grad(self.forward, None, parameters, has_aux=True)

    def forward(self, images: Tensor, labels: Tensor, factor: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        loss, right = self.loss(self.network(images), labels)
        return loss * factor, loss, right

    def construct(self, images: Tensor, labels: Tensor, factor: Tensor) -> tuple[Tensor, Tensor, tuple[Tensor, ...]]:
        (_, loss, right), gradients = self.differentiate(images, labels, factor)
        return loss, right, gradients


_start = ops.MultitypeFuncGraph("start_window")
_add = ops.MultitypeFuncGraph("add_to_window")


@_start.register("Tensor", "Tensor")
def _start_tensor(total: Tensor, gradient: Tensor) -> Tensor:
    return ops.assign(total, ops.cast(gradient, ms.float32))


@_add.register("Tensor", "Tensor")
def _add_tensor(total: Tensor, gradient: Tensor) -> Tensor:
    return ops.assign_add(total, ops.cast(gradient, ms.float32))


class Accumulator(nn.Cell):
    """Sums of gradients over a window.

    Args:
        parameters: the trainable parameters; the sums have their shapes.

    Inputs: gradients, a tuple in the order of the parameters, already weighted by their share of samples; `first`,
    a boolean scalar: whether they open a window. If so, they replace the sums of the last window, so nothing has
    to be cleared.
    """

    def __init__(self, parameters: Sequence[Parameter]) -> None:
        super().__init__()
        # Not "accum": nn.SGD names its own state so, and MindSpore would rename the weights instead of failing.
        self.sums = ParameterTuple(parameters).clone(prefix="window", init="zeros")
        self.map = ops.HyperMap()
        self.fused = current_backend().library is not None
        if self.fused:
            self.add_up = Accumulate(self.sums)

    def construct(self, gradients: tuple[Tensor, ...], first: Tensor) -> Tensor:
        if self.fused:
            return self.add_up(gradients, first)
        if first:
            self.map(_start, self.sums, gradients)
        else:
            self.map(_add, self.sums, gradients)
        return first


class ClearSums(nn.Cell):
    """Sets the sums to zero: what a rank without samples adds."""

    def __init__(self, accumulator: Accumulator) -> None:
        super().__init__(auto_prefix=False)
        self.sums = accumulator.sums

    def construct(self) -> Tensor:
        for i in range(len(self.sums)):
            ops.assign(self.sums[i], ops.zeros_like(self.sums[i]))
        return Tensor(0.0, ms.float32)


class ApplyGradients(nn.Cell):
    """Unscales gradients, checks that they are finite, transforms and applies them.

    Inputs: gradients; factor, which multiplies them; rate, the learning rate of this update (float32 scalars).
    Outputs: `Outcome` (6,).
    """

    def __init__(
        self, optimizer: nn.Optimizer, loss_scaler: LossScaler, transform: nn.Cell | None, scaled: bool
    ) -> None:
        super().__init__(auto_prefix=False)
        self.optimizer, self.loss_scaler = optimizer, loss_scaler
        self.transform, self.scaled = transform, scaled
        self.global_norm, self.scale = GlobalNorm(), Scale()
        self.fused = getattr(optimizer, "fused", False)  # then it can be told not to step

    def construct(self, gradients: tuple[Tensor, ...], factor: Tensor, rate: Tensor) -> Tensor:
        if self.scaled:
            gradients = self.scale(gradients, self.loss_scaler.unscale_factor(factor))
        norm = self.global_norm(gradients)
        known = ops.assign(self.optimizer.learning_rate, rate)
        clipped = applied = Tensor(0.0, ms.float32)
        if self.fused:
            if self.transform is not None:
                gradients, clipped = self.transform(gradients, norm)
            finite, outcome = self.loss_scaler.finite_check(norm, clipped)
            return ops.depend(outcome, self.optimizer(gradients, ops.depend(finite, known)))
        finite, loss_scale = self.loss_scaler.check(norm)
        if finite:
            if self.transform is not None:
                gradients, clipped = self.transform(gradients, norm)
            applied = ops.depend(self.loss_scaler.one, self.optimizer(gradients))
            self.loss_scaler.count_applied()
        else:
            self.loss_scaler.count_skipped()
        return stack_outcome(norm, norm, applied, clipped, loss_scale, self.loss_scaler.consecutive_skips)


class SingleBatchUpdate(Graph):
    """An update of a single micro-batch, in one graph."""

    def __init__(self, gradient: Gradient, apply_gradients: ApplyGradients) -> None:
        super().__init__()
        self.gradient, self.apply_gradients = gradient, apply_gradients
        self.loss_scaler = apply_gradients.loss_scaler

    def construct(self, images: Tensor, labels: Tensor, one: Tensor, rate: Tensor) -> Tensor:
        loss, right, gradients = self.gradient(images, labels, self.loss_scaler.scale_factor(one))
        return ops.concat((loss.reshape(1), right.reshape(1), self.apply_gradients(gradients, one, rate)))


class AccumulateGradients(Graph):
    """One micro-batch of a window, its gradients added up."""

    def __init__(self, gradient: Gradient, accumulator: Accumulator, loss_scaler: LossScaler) -> None:
        super().__init__()
        self.gradient, self.accumulator, self.loss_scaler = gradient, accumulator, loss_scaler

    def construct(self, images: Tensor, labels: Tensor, weight: Tensor, first: Tensor) -> Tensor:
        loss, right, gradients = self.gradient(images, labels, self.loss_scaler.scale_factor(weight))
        return ops.depend(ops.stack((loss, right)), self.accumulator(gradients, first))


class FinishWindow(Graph):
    """The end of an update's windows: applies what was added up, here and on other ranks."""

    def __init__(self, accumulator: Accumulator, apply_gradients: ApplyGradients, reduce: nn.Cell | None) -> None:
        super().__init__()
        self.accumulator, self.apply_gradients, self.reduce = accumulator, apply_gradients, reduce

    def construct(self, factor: Tensor, rate: Tensor) -> Tensor:
        sums = self.accumulator.sums
        if self.reduce is not None:
            sums = self.reduce(sums)
        return self.apply_gradients(sums, factor, rate)
