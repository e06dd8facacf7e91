"""Operations on all gradients or parameters at once: global norm, scaling, accumulation and optimizer steps.

Optimizer steps write weights and their own state in place, which MindSpore's graph does not know: whatever reads a
weight after a step in the same graph must depend on the step's output. Fused steps (`fused`) take a flag,
`should_step` = 0, that skips them without control flow in the graph.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import mindspore as ms
from mindspore import Parameter, ParameterTuple, Tensor, nn, ops

from msaccel.kernels.backend import current_backend
from msaccel.kernels.custom_op import ONE, operator


class GlobalNorm(nn.Cell):
    """Euclidean norm over a tuple of float32 tensors, as a float32 scalar; partial sums are added in float64.

    A single float32 sum over a tensor of 3 million elements is off by a thousandth.
    """

    def __init__(self) -> None:
        super().__init__()
        self.fused = current_backend().library is not None
        if self.fused:
            self.norm = operator("global_norm", lambda *gradients: ONE, lambda *gradients: ms.float32)

    def construct(self, gradients: tuple[Tensor, ...]) -> Tensor:
        if self.fused:
            return self.norm(*gradients).reshape(())
        squares: tuple[Tensor, ...] = ()
        for gradient in gradients:
            squares = squares + ((gradient * gradient).sum(-1).astype(ms.float64).sum(),)
        return ops.sqrt(ops.stack(squares).sum()).astype(ms.float32)


class Scale(nn.Cell):
    """Tensors times a factor. Inputs: a tuple of tensors; the factor, a float32 scalar. Outputs: float32 tensors."""

    def __init__(self) -> None:
        super().__init__()
        self.fused = current_backend().library is not None
        if self.fused:
            self.scale = operator("scale", lambda factor, *tensors: tensors, lambda factor, *tensors: tensors)

    def construct(self, tensors: tuple[Tensor, ...], factor: Tensor) -> tuple[Tensor, ...]:
        if self.fused:
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


class Accumulate(nn.Cell):
    """Adds gradients to float32 sums in place. Only with the native operators.

    Args:
        sums: one for each gradient, of its shape.

    Inputs: gradients, a tuple of tensors; first, a boolean scalar: true replaces the sums, false adds to them.
    Output: a scalar to depend on.
    """

    def __init__(self, sums: ParameterTuple) -> None:
        super().__init__(auto_prefix=False)
        self.sums = sums
        self.accumulate = operator("accumulate", lambda *tensors: ONE, lambda *tensors: ms.float32)

    def construct(self, gradients: tuple[Tensor, ...], first: Tensor) -> Tensor:
        return self.accumulate(first, *_in_float32(gradients), *self.sums)


class Momentum(nn.Momentum):
    """`nn.Momentum` as one fused operator: v ← μ v + (g + λ w), then w ← w − η v.

    Args:
        groups: the parameters as MindSpore's optimizers take them.
        decays: weight decay λ of each parameter, in the order of the gradients.
        options: passed to `nn.Momentum`.
    """

    def __init__(self, groups: Sequence[Parameter | dict[str, Any]], decays: Sequence[float], **options: Any) -> None:
        super().__init__(groups, **options)
        self.fused = current_backend().library is not None
        if self.fused:
            self.numbers, self.always = Tensor([options["momentum"], *decays], ms.float32), Tensor(1.0, ms.float32)
            self.step = operator("momentum", lambda *tensors: ONE, lambda *tensors: ms.float32)

    def construct(self, gradients: tuple[Tensor, ...], should_step: Tensor | None = None) -> Tensor:
        if self.fused:
            known = (self.always if should_step is None else should_step, self.learning_rate, self.numbers)
            return self.step(*known, *gradients, *self.parameters, *self.moments)
        return super().construct(gradients)


class Adam(nn.Adam):
    """`nn.Adam` as one fused operator; with decoupled decay AdamW: w ← (1 − η λ) w, then Adam (arXiv 1711.05101).

    MindSpore's own operator splits a tensor among threads by earlier timings, so its last bits vary between runs.

    Args:
        groups: the parameters as MindSpore's optimizers take them, without decay if it is decoupled.
        decays: weight decay λ of each parameter, in the order of the gradients.
        decoupled: whether the decay is applied to the weight directly instead of being added to the gradient.
        options: passed to `nn.Adam`.
    """

    def __init__(self, groups: Sequence[Any], decays: Sequence[float], decoupled: bool = False, **options: Any) -> None:
        super().__init__(groups, **options)
        self.decoupled, self.decays = decoupled, tuple(decays)
        self.fused = current_backend().library is not None
        if self.fused:
            numbers = [options["beta1"], options["beta2"], options["eps"], float(decoupled), *decays]
            self.numbers, self.always = Tensor(numbers, ms.float32), Tensor(1.0, ms.float32)
            self.step = operator("adam", lambda *tensors: ONE, lambda *tensors: ms.float32)

    def construct(self, gradients: tuple[Tensor, ...], should_step: Tensor | None = None) -> Tensor:
        if self.fused:
            should_step = self.always if should_step is None else should_step
            known = (should_step, self.learning_rate, self.numbers, self.beta1_power, self.beta2_power)
            return self.step(*known, *gradients, *self.parameters, *self.moment1, *self.moment2)
        if self.decoupled:
            for i in range(len(self.decays)):
                if self.decays[i]:
                    weight = self.parameters[i]
                    ops.assign(weight, weight * (1 - self.learning_rate * self.decays[i]))
        return super().construct(gradients)
