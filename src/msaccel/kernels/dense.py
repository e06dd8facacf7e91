"""A dense layer fused with its bias and an optional ReLU."""

from __future__ import annotations

from typing import Any

import mindspore as ms
from mindspore import Tensor, nn

from msaccel.kernels.backend import Products, current_backend
from msaccel.kernels.custom_op import Shape, operator


def _weight(dy: Shape, y: Shape, x: Shape, weight: Shape, numbers: Shape) -> Shape:
    return weight


def _weight_and_its_rows(dy: Shape, y: Shape, x: Shape, weight: Shape, numbers: Shape) -> tuple[Shape, Shape]:
    return weight, (weight[0],)


class _Operators(nn.Cell):
    """The forward and gradient operators of a dense layer."""

    def __init__(self, relu: bool, products: Products, has_bias: bool) -> None:
        super().__init__()
        self.numbers = Tensor([int(relu), products], ms.int32)

        def shape(x: Shape, weight: Shape, *others: Shape) -> Shape:
            return x[0], weight[0]

        self.forward = operator("dense", shape, lambda x, *others: x)
        self.input_gradient = operator(
            "dense_input_gradient", lambda dy, y, weight, x, numbers: x, lambda dy, *others: dy
        )
        if has_bias:
            self.weight_gradient = operator("dense_weight_gradient", _weight_and_its_rows, lambda dy, *others: (dy, dy))
        else:
            self.weight_gradient = operator("dense_weight_gradient", _weight, lambda dy, *others: dy)


class _Dense(_Operators):
    """x (N, I), weight (O, I) and bias (O,) in float32 to y (N, O)."""

    def __init__(self, relu: bool, products: Products) -> None:
        super().__init__(relu, products, has_bias=True)

    def construct(self, x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        return self.forward(x, weight, bias, self.numbers)

    def bprop(self, x: Tensor, weight: Tensor, bias: Tensor, y: Tensor, dy: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        dx = self.input_gradient(dy, y, weight, x, self.numbers)
        dweight, dbias = self.weight_gradient(dy, y, x, weight, self.numbers)
        return dx, dweight, dbias


class _DenseWithoutBias(_Operators):
    """x (N, I) and weight (O, I) in float32 to y (N, O)."""

    def __init__(self, relu: bool, products: Products) -> None:
        super().__init__(relu, products, has_bias=False)

    def construct(self, x: Tensor, weight: Tensor) -> Tensor:
        return self.forward(x, weight, self.numbers)

    def bprop(self, x: Tensor, weight: Tensor, y: Tensor, dy: Tensor) -> tuple[Tensor, Tensor]:
        return (
            self.input_gradient(dy, y, weight, x, self.numbers),
            self.weight_gradient(dy, y, x, weight, self.numbers),
        )


class Dense(nn.Dense):
    """`nn.Dense` with the same parameters, and the same values up to rounding.

    Args:
        in_channels: I of the input (N, I).
        out_channels: O of the output (N, O).
        relu: whether a ReLU follows.
        has_bias, weight_init, bias_init: as for `nn.Dense`, whose `activation` is left to `relu`.
    """

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        relu: bool = False,
        *,
        has_bias: bool = True,
        weight_init: Any = None,
        bias_init: Any = None,
    ) -> None:
        super().__init__(in_channels, out_channels, weight_init, bias_init, has_bias)
        self.fused = current_backend().library is not None
        if self.fused:
            self.dense = (_Dense if self.has_bias else _DenseWithoutBias)(relu, current_backend().products)
        self.after = nn.ReLU() if relu else nn.Identity()

    def construct(self, x: Tensor) -> Tensor:
        if not self.fused or x.dtype != ms.float32:
            return self.after(super().construct(x))
        if self.has_bias:
            return self.dense(x, self.weight, self.bias)
        return self.dense(x, self.weight)
