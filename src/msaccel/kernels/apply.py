"""What an update does with all gradients at once: their global norm, and a step with momentum."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import mindspore as ms
from mindspore import Parameter, Tensor, nn, ops

from msaccel.kernels.choice import chosen
from msaccel.kernels.custom import ONE, operator


class GlobalNorm(nn.Cell):
    """Euclidean norm over all tensors (a tuple, float32), a float32 scalar; sums are of float64 in the end.

    One float32 sum over a tensor of 3 million elements is wrong by a thousandth.
    """

    def __init__(self) -> None:
        super().__init__()
        self.ours = chosen().library is not None
        if self.ours:
            self.norm = operator("global_norm", lambda *gradients: ONE, lambda *gradients: ms.float32)

    def construct(self, gradients: tuple[Tensor, ...]) -> Tensor:
        if self.ours:
            return self.norm(*gradients).reshape(())
        squares: tuple[Tensor, ...] = ()
        for gradient in gradients:
            squares = squares + ((gradient * gradient).sum(-1).astype(ms.float64).sum(),)
        return ops.sqrt(ops.stack(squares).sum()).astype(ms.float32)


class Momentum(nn.Momentum):
    """`nn.Momentum` as one operator: v ← μ v + (g + λ w), then w ← w − η v.

    The operator writes weights and velocities where they lie, and MindSpore's graph does not know that it does: what
    reads a weight after the step, in the same graph, must depend on what this returns.

    Args:
        groups: the parameters as MindSpore's optimizers take them.
        decays: λ of each parameter, in the order of the gradients.
        options: what `nn.Momentum` takes.
    """

    def __init__(self, groups: Sequence[Parameter | dict[str, Any]], decays: Sequence[float], **options: Any) -> None:
        super().__init__(groups, **options)
        self.ours = chosen().library is not None
        if self.ours:
            self.numbers = Tensor([options["momentum"], *decays], ms.float32)
            self.step = operator("momentum", lambda *tensors: ONE, lambda *tensors: ms.float32)

    def construct(self, gradients: tuple[Tensor, ...]) -> Tensor:
        if self.ours:
            weights, velocities = self.parameters, self.moments
            return self.step(self.learning_rate, self.numbers, *gradients, *weights, *velocities).reshape(())
        return super().construct(gradients)
