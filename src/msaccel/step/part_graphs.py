"""Graphs for methods that look at the gradients of several parts (ranks, windows or passes) before an update."""

from __future__ import annotations

import mindspore as ms
from mindspore import Tensor, nn, ops

from msaccel.kernels import GlobalNorm, Scale, current_backend, stack_outcome
from msaccel.kernels.finite_check import CLIPPED
from msaccel.kernels.graph import Graph
from msaccel.step.graphs import Accumulator, Gradient
from msaccel.step.loss_scaler import LossScaler


class StepIfFinite(Graph):
    """Transforms and applies one of several gradients whose norms were checked together.

    Inputs: finite, a boolean scalar all have agreed on; norm and rate, float32 scalars; the gradients.
    Output: 1.0 if the gradients were transformed, else 0.0; it depends on the optimizer's step.
    """

    def __init__(self, optimizer: nn.Optimizer, transform: nn.Cell | None) -> None:
        super().__init__()
        self.optimizer, self.transform = optimizer, transform
        self.fused = getattr(optimizer, "fused", False)  # then it can be told not to step

    def construct(self, finite: Tensor, norm: Tensor, rate: Tensor, *gradients: Tensor) -> Tensor:
        known = ops.assign(self.optimizer.learning_rate, rate)
        clipped = Tensor(0.0, ms.float32)
        if self.fused:
            go = finite.astype(ms.float32)
            if self.transform is not None:
                gradients, clipped = self.transform(gradients, norm)
            clipped = ops.depend(clipped * go, self.optimizer(gradients, ops.depend(go, known)))
        elif finite:
            if self.transform is not None:
                gradients, clipped = self.transform(gradients, norm)
            clipped = ops.depend(clipped, self.optimizer(gradients))
        return clipped


class WindowGradient(Graph):
    """The unscaled mean gradient of a part, as new tensors, followed by its global norm."""

    def __init__(self, accumulator: Accumulator, loss_scaler: LossScaler, reduce: nn.Cell | None) -> None:
        super().__init__()
        self.accumulator, self.loss_scaler, self.reduce = accumulator, loss_scaler, reduce
        self.global_norm, self.scale = GlobalNorm(), Scale()

    def construct(self, factor: Tensor) -> tuple[Tensor, ...]:
        sums = self.accumulator.sums
        if self.reduce is not None:
            sums = self.reduce(sums)
        gradients = self.scale(sums, self.loss_scaler.unscale_factor(factor))
        return (*gradients, self.global_norm(gradients))


class PartGradient(Graph):
    """The gradient of a part whose window is a single micro-batch, without adding anything up.

    Inputs: images, labels; factor, a float32 scalar that multiplies the gradient. Outputs: mean loss and number of
    correctly classified samples (2,); the unscaled gradient as new tensors; its global norm.
    """

    def __init__(self, gradient: Gradient, loss_scaler: LossScaler, lower_precision: bool) -> None:
        super().__init__()
        self.gradient, self.loss_scaler = gradient, loss_scaler
        self.scaled = loss_scaler.scaled or lower_precision
        self.global_norm, self.scale = GlobalNorm(), Scale()

    def construct(self, images: Tensor, labels: Tensor, factor: Tensor) -> tuple[Tensor, ...]:
        loss, right, gradients = self.gradient(images, labels, self.loss_scaler.scale_factor(factor))
        if self.scaled:
            gradients = self.scale(gradients, self.loss_scaler.unscale_factor(self.loss_scaler.one))
        return (ops.stack((loss, right)), *gradients, self.global_norm(gradients))


class CheckParts(nn.Cell):
    """The finite check over all parts.

    Args:
        gather: collects the norms of all parts (parts,) from every process; None if all parts are in this one.

    Inputs: the norms of the parts here, a tuple; the share of parts that was clipped (float32 scalar). Outputs: 1 if
    all may step, else 0 (1,); `Outcome` (6,).
    """

    def __init__(self, loss_scaler: LossScaler, gather: nn.Cell | None = None) -> None:
        super().__init__(auto_prefix=False)
        self.loss_scaler, self.gather = loss_scaler, gather
        self.fused = current_backend().library is not None

    def construct(self, norms: tuple[Tensor, ...], clipped: Tensor) -> tuple[Tensor, Tensor]:
        every = ops.stack(norms)
        if self.gather is not None:
            every = self.gather(every)
        if self.fused:
            return self.loss_scaler.finite_check(every, clipped)
        finite, scale = self.loss_scaler.check(every.mean())
        if finite:
            self.loss_scaler.count_applied()
        else:
            self.loss_scaler.count_skipped()
        applied, skips = finite.astype(ms.float32), self.loss_scaler.consecutive_skips
        return applied.reshape(1), stack_outcome(every.mean(), every.max(), applied, clipped * applied, scale, skips)


class AgreeOnFinite(Graph):
    """The finite check over all parts, before any of them is clipped.

    Inputs: the norms of the parts here. Outputs: whether all may step; `Outcome` (6,) with nothing clipped.
    """

    def __init__(self, loss_scaler: LossScaler, gather: nn.Cell | None = None) -> None:
        super().__init__()
        self.check_parts = CheckParts(loss_scaler, gather)

    def construct(self, *norms: Tensor) -> tuple[Tensor, Tensor]:
        applied, outcome = self.check_parts(norms, Tensor(0.0, ms.float32))
        return applied.reshape(()) > 0, outcome


class SetClipped(Graph):
    """Puts the share of clipped parts into the `Outcome` (6,) that was agreed on, from a flag for each part."""

    def construct(self, agreed: Tensor, *clipped: Tensor) -> Tensor:
        share = ops.stack(clipped).mean()
        return ops.concat((agreed[:CLIPPED], share.reshape(1), agreed[CLIPPED + 1 :]))
