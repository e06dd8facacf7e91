"""Convolution on the oneDNN that MindSpore ships, through the native operators (`native/`).

MindSpore's own CPU convolution restricts oneDNN to a plain weight layout and so, with AVX-512, to its reference kernel.
These operators let oneDNN choose the layout, and use Winograd's algorithm for 3 × 3 kernels where that is faster
(`native/winograd.h`). They compute in float32 even for float16 tensors: as far as we know, oneDNN trains in float16
only on processors with AVX512-FP16. In bfloat16 they multiply with the processor's own instructions.
"""

from __future__ import annotations

from typing import Any

import mindspore as ms
from mindspore import Tensor, nn, ops

from msaccel.kernels.backend import Products
from msaccel.kernels.conv_shape import Geometry
from msaccel.kernels.custom_op import Shape, operator
from msaccel.kernels.processor import block


def _third(first: Any, second: Any, third: Any, numbers: Any) -> Any:  # shape, or type
    return third


def _type_of_third_twice(first: Any, second: Any, third: Any, numbers: Any) -> Any:
    return third, third


def _third_and_its_rows(first: Shape, second: Shape, third: Shape, numbers: Shape) -> tuple[Shape, Shape]:
    return third, (third[0],)


class _OneDnnOperators(nn.Cell):
    """The forward and gradient operators of one convolution, without parameters."""

    has_bias = False

    def __init__(
        self, geometry: Geometry, blocked: bool = False, products: Products = Products.FLOAT32, narrow: bool = False
    ) -> None:
        super().__init__()
        self.numbers = Tensor((*geometry.numbers, products), ms.int32)
        channels = block() or 1

        def shape_of_output(x: Shape, weight: Shape, *others: Shape) -> Shape:
            size = geometry.out_size(*x[2:4])
            return (x[0], weight[0] // channels, *size, channels) if blocked else (x[0], weight[0], *size)

        def type_of_output(x: Any, *others: Any) -> Any:
            return ms.bfloat16 if narrow else x

        self.forward = operator("convolution", shape_of_output, type_of_output, (geometry, blocked, narrow))
        self.input_gradient = operator("convolution_input_gradient", _third, _third)
        of_weight = (_third_and_its_rows, _type_of_third_twice) if self.has_bias else (_third, _third)
        self.weight_gradient = operator("convolution_weight_gradient", *of_weight)


class OneDnnConvolution(_OneDnnOperators):
    """Inputs: x (N, C, H, W) and weight (O, C / groups, k, k), both float32 or both float16. Output: (N, O, H', W').

    In float32, x may be in blocks of `block()` channels, (N, C / 16, H, W, 16) or (N, C / 8, H, W, 8), and `blocked`
    makes the output so. With products in bfloat16, x may be in float32 or bfloat16, the weight is in float32, and
    `narrow` makes the output bfloat16.
    """

    def construct(self, x: Tensor, weight: Tensor) -> Tensor:
        return self.forward(x, weight, self.numbers)

    def bprop(self, x: Tensor, weight: Tensor, y: Tensor, dy: Tensor) -> tuple[Tensor, Tensor]:
        # With mixed precision in PyNative mode x and weight are still float32 where y is float16.
        inputs = (x.astype(dy.dtype), weight.astype(dy.dtype)) if dy.dtype == ms.float16 else (x, weight)
        dx = self.input_gradient(dy, inputs[1], inputs[0], self.numbers)
        dweight = self.weight_gradient(inputs[0], dy, inputs[1], self.numbers)
        return dx.astype(x.dtype), dweight.astype(weight.dtype)


class OneDnnBiasedConvolution(_OneDnnOperators):
    """The same with a bias (O,) as third input, which is added and differentiated by the operators."""

    has_bias = True

    def construct(self, x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        return self.forward(x, weight, bias, self.numbers)

    def bprop(self, x: Tensor, weight: Tensor, bias: Tensor, y: Tensor, dy: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        dx = self.input_gradient(dy, weight, x, self.numbers)
        dweight, dbias = self.weight_gradient(x, dy, weight, self.numbers)
        return dx, dweight, dbias


class OneDnnTransposedConvolution(_OneDnnOperators):
    """The input gradient as an operator of its own: inputs y (N, O, H', W'), the weight, and a tensor of x's shape."""

    def construct(self, y: Tensor, weight: Tensor, x: Tensor) -> Tensor:
        return self.input_gradient(y, weight, x, self.numbers)

    def bprop(self, y: Tensor, weight: Tensor, x: Tensor, out: Tensor, dout: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        inputs = y.astype(dout.dtype), weight.astype(dout.dtype)
        dweight = self.weight_gradient(dout, inputs[0], inputs[1], self.numbers)
        dy = self.forward(dout, inputs[1], self.numbers)
        return dy.astype(y.dtype), dweight.astype(weight.dtype), ops.zeros_like(x)
