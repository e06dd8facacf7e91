"""Convolution by im2col and a matrix product: the fallback without a C++ compiler, and for float64.

MindSpore's CPU convolution passes oneDNN a weight layout for which oneDNN has, with AVX-512, only its reference kernel,
about 1 GFLOP/s. Here the input is unfolded into columns (im2col) and multiplied with the kernel. The gradients are
explicit because autodiff would transpose the columns first, a quarter of a LeNet step:

    cols = im2col(x)            (N, C·k·k, L)
    y    = W · cols             (N, O, L)          L = height · width of the output
    dW   = Σ_n dy · colsᵀ       (O, C·k·k)
    dx   = col2im(Wᵀ · dy)

Groups extend the batch: N·g products, each over C / g channels. MindSpore's compiler unfolds the input once for the
forward and the backward pass.
"""

from __future__ import annotations

from dataclasses import replace

import mindspore as ms
from mindspore import Tensor, nn, ops
from mindspore.ops.operations.array_ops import Col2Im, Im2Col

from msaccel.kernels.conv_shape import Geometry


def convolution(geometry: Geometry) -> nn.Cell:
    """For geometries that are the same both ways, but for the padding."""
    same = len(set(geometry.padding or ())) < 2
    return Im2ColConvolution(geometry) if same else PaddedConvolution(geometry)


class PaddedConvolution(nn.Cell):
    """Adds the zeros first, as many on each side as the geometry says."""

    def __init__(self, geometry: Geometry) -> None:
        super().__init__()
        assert geometry.padding
        top, bottom, left, right = geometry.padding
        self.pad = ops.Pad(((0, 0), (0, 0), (top, bottom), (left, right)))
        self.convolution = Im2ColConvolution(replace(geometry, padding=(0, 0, 0, 0)))

    def construct(self, x: Tensor, weight: Tensor) -> Tensor:
        return self.convolution(self.pad(x), weight)


class Im2ColConvolution(nn.Cell):
    """The convolution itself, without parameters or bias; for geometries that are the same on all sides.

    Inputs: x (N, C, H, W) and weight (O, C / groups, k, k), both float. Output: (N, O, H', W').
    """

    def __init__(self, geometry: Geometry) -> None:
        super().__init__()
        self.groups = geometry.groups
        self.out_size = ops.constexpr(geometry.out_size)
        k, stride, dilation = geometry.kernel[0], geometry.stride[0], geometry.dilation[0]
        assert geometry.padding, 'pad_mode="same" is for oneDNN'
        padding = geometry.padding[0]
        self.im2col = Im2Col(ksizes=k, strides=stride, dilations=dilation, pads=padding)
        self.col2im = Col2Im(kernel_size=k, stride=stride, dilation=dilation, padding=padding)
        self.kernel_area = k * k
        self.product = ops.BatchMatMul()
        self.product_transposed_left = ops.BatchMatMul(transpose_a=True)
        self.product_transposed_right = ops.BatchMatMul(transpose_b=True)
        self.sum = ops.ReduceSum()

    def columns(self, x: Tensor) -> Tensor:
        n, c, _, _ = x.shape
        return self.im2col(x).reshape(n * self.groups, c * self.kernel_area // self.groups, -1)

    def rows(self, weight: Tensor, n: int) -> Tensor:
        # The kernel is repeated along the batch, because a broadcast product would be transposed instead.
        shape = (self.groups, weight.shape[0] // self.groups, weight[0].size)
        repeated = ops.broadcast_to(weight.reshape((1,) + shape), (n,) + shape)
        return repeated.reshape((n * shape[0],) + shape[1:])

    def construct(self, x: Tensor, weight: Tensor) -> Tensor:
        n, _, height, width = x.shape
        y = self.product(self.rows(weight, n), self.columns(x))
        return y.reshape((n, weight.shape[0]) + self.out_size(height, width))

    def bprop(self, x: Tensor, weight: Tensor, y: Tensor, dy: Tensor) -> tuple[Tensor, Tensor]:
        n, c, height, width = x.shape
        dy = dy.reshape(n * self.groups, weight.shape[0] // self.groups, -1)
        dweights = self.product_transposed_right(dy, self.columns(x))
        dweight = self.sum(dweights.reshape((n,) + weight.shape), 0)
        dcolumns = self.product_transposed_left(self.rows(weight, n), dy)
        size = Tensor([height, width], ms.int32)
        return self.col2im(dcolumns.reshape(n, c, self.kernel_area, -1), size), dweight
