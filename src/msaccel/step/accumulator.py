"""The accumulator in the graph: float32 sums of weighted gradients, one per parameter."""

from __future__ import annotations

from collections.abc import Sequence

import mindspore as ms
from mindspore import Parameter, ParameterTuple, Tensor, nn, ops

from msaccel.kernels import Accumulate, current_backend

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
    a boolean scalar: whether they open a window. The first ones replace what the last window left, so nothing has
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


class Clear(nn.Cell):
    """Sets the sums to zero: what a rank without samples adds."""

    def __init__(self, accumulator: Accumulator) -> None:
        super().__init__(auto_prefix=False)
        self.sums = accumulator.sums

    def construct(self) -> Tensor:
        for i in range(len(self.sums)):
            ops.assign(self.sums[i], ops.zeros_like(self.sums[i]))
        return Tensor(0.0, ms.float32)
