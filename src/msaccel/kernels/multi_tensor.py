"""What an update does with all gradients at once: their global norm, and a step of the optimizer.

The steps write weights and their own state where they lie, and MindSpore's graph does not know that they do: what reads
a weight after a step, in the same graph, must depend on what the step returns. Where they are operators of ours
(`ours`), they can be told not to be made, `good` = 0, which needs no control flow in the graph.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import mindspore as ms
from mindspore import Parameter, ParameterTuple, Tensor, nn, ops

from msaccel.kernels.backend import chosen
from msaccel.kernels.custom_op import ONE, operator


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


class Scale(nn.Cell):
    """Inputs: tensors (a tuple); factor, a float32 scalar. Outputs: each tensor times the factor, in float32."""

    def __init__(self) -> None:
        super().__init__()
        self.ours = chosen().library is not None
        if self.ours:
            self.scale = operator("scale", lambda factor, *tensors: tensors, lambda factor, *tensors: tensors)

    def construct(self, tensors: tuple[Tensor, ...], factor: Tensor) -> tuple[Tensor, ...]:
        if self.ours:
            return self.scale(factor, *_in_float32(tensors))
        scaled: tuple[Tensor, ...] = ()
        for tensor in _in_float32(tensors):
            scaled = scaled + (tensor * factor,)
        return scaled


def _in_float32(tensors: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    cast: tuple[Tensor, ...] = ()
    for tensor in tensors:
        cast = cast + (ops.cast(tensor, ms.float32),)
    return cast


class AddUp(nn.Cell):
    """Sums of gradients, changed where they lie. Only with the operators on oneDNN.

    Args:
        sums: of the gradients' shapes.

    Inputs: gradients, a tuple of tensors; first, a boolean scalar: whether they replace the sums or are added.
    Outputs: a number, when it is done.
    """

    def __init__(self, sums: ParameterTuple) -> None:
        super().__init__(auto_prefix=False)
        self.sums = sums
        self.add_up = operator("add_up", lambda *tensors: ONE, lambda *tensors: ms.float32)

    def construct(self, gradients: tuple[Tensor, ...], first: Tensor) -> Tensor:
        return self.add_up(first, *_in_float32(gradients), *self.sums)


class Momentum(nn.Momentum):
    """`nn.Momentum` as one operator: v ← μ v + (g + λ w), then w ← w − η v.

    Args:
        groups: the parameters as MindSpore's optimizers take them.
        decays: λ of each parameter, in the order of the gradients.
        options: what `nn.Momentum` takes.
    """

    def __init__(self, groups: Sequence[Parameter | dict[str, Any]], decays: Sequence[float], **options: Any) -> None:
        super().__init__(groups, **options)
        self.ours = chosen().library is not None
        if self.ours:
            self.numbers, self.good = Tensor([options["momentum"], *decays], ms.float32), Tensor(1.0, ms.float32)
            self.step = operator("momentum", lambda *tensors: ONE, lambda *tensors: ms.float32)

    def construct(self, gradients: tuple[Tensor, ...], good: Tensor | None = None) -> Tensor:
        if self.ours:
            known = (self.good if good is None else good, self.learning_rate, self.numbers)
            return self.step(*known, *gradients, *self.parameters, *self.moments)
        return super().construct(gradients)


class Adam(nn.Adam):
    """`nn.Adam` as one operator, and with decoupled decay AdamW: w ← (1 − η λ) w, then Adam's step (arXiv 1711.05101).

    MindSpore's own operator splits a tensor among threads by how long that took before, and the last bit with it.

    Args:
        groups: the parameters as MindSpore's optimizers take them, without decay where it is decoupled.
        decays: λ of each parameter, in the order of the gradients.
        decoupled: whether λ w stays out of the gradient.
        options: what `nn.Adam` takes.
    """

    def __init__(self, groups: Sequence[Any], decays: Sequence[float], decoupled: bool = False, **options: Any) -> None:
        super().__init__(groups, **options)
        self.decoupled, self.decays = decoupled, tuple(decays)
        self.ours = chosen().library is not None
        if self.ours:
            numbers = [options["beta1"], options["beta2"], options["eps"], float(decoupled), *decays]
            self.numbers, self.good = Tensor(numbers, ms.float32), Tensor(1.0, ms.float32)
            self.step = operator("adam", lambda *tensors: ONE, lambda *tensors: ms.float32)

    def construct(self, gradients: tuple[Tensor, ...], good: Tensor | None = None) -> Tensor:
        if self.ours:
            good = self.good if good is None else good
            known = (good, self.learning_rate, self.numbers, self.beta1_power, self.beta2_power)
            return self.step(*known, *gradients, *self.parameters, *self.moment1, *self.moment2)
        if self.decoupled:
            for i in range(len(self.decays)):
                if self.decays[i]:
                    weight = self.parameters[i]
                    ops.assign(weight, weight * (1 - self.learning_rate * self.decays[i]))
        return super().construct(gradients)
