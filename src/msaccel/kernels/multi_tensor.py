"""Operations on all gradients at once: global norm, scaling, accumulation."""

from __future__ import annotations

import mindspore as ms
from mindspore import ParameterTuple, Tensor, nn, ops

from msaccel.kernels.backend import current_backend
from msaccel.kernels.custom_op import ONE, operator
from msaccel.kernels.flat import Tensors, each


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
        squares: Tensors = each(_sum_of_squares, gradients)
        return ops.sqrt(ops.stack(squares).sum()).astype(ms.float32)


def _sum_of_squares(tensor: Tensor) -> Tensor:
    return (tensor * tensor).sum(-1).astype(ms.float64).sum()


class Scale(nn.Cell):
    """Tensors times a factor. Inputs: a tuple of tensors; the factor, a float32 scalar. Outputs: float32 tensors."""

    def __init__(self) -> None:
        super().__init__()
        self.fused = current_backend().library is not None
        if self.fused:
            self.scale = operator("scale", lambda factor, *tensors: tensors, lambda factor, *tensors: tensors)

    def construct(self, tensors: tuple[Tensor, ...], factor: Tensor) -> tuple[Tensor, ...]:
        if self.fused:
            return self.scale(factor, *in_float32(tensors))
        scaled: Tensors = each(ops.partial(ops.mul, factor), in_float32(tensors))
        return scaled


def in_float32(tensors: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    """The tensors cast to float32; those that have this type stay."""
    cast: Tensors = each(_wide, tensors)
    return cast


def _wide(tensor: Tensor) -> Tensor:
    return ops.cast(tensor, ms.float32)


class Accumulate(nn.Cell):
    """Adds gradients to float32 sums in place. Only with the native operators.

    Args:
        sums: one for each gradient, of its shape.

    Inputs: gradients, a tuple of tensors; first, a boolean scalar: true replaces the sums, false adds to them.
    Output: 1.
    """

    def __init__(self, sums: ParameterTuple) -> None:
        super().__init__(auto_prefix=False)
        self.sums = sums
        written = (False,) * (1 + len(sums)) + (True,) * len(sums)
        self.accumulate = operator("accumulate", lambda *tensors: ONE, lambda *tensors: ms.float32, written=written)

    def construct(self, gradients: tuple[Tensor, ...], first: Tensor) -> Tensor:
        return self.accumulate(first, *in_float32(gradients), *self.sums)
