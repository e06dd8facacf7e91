"""Convolution as unfold and matrix product: on a CPU ten times faster than MindSpore's own.

MindSpore's CPU convolution hands oneDNN a weight layout for which oneDNN has only its reference kernel, about
1 GFLOP/s. Here the columns of the input are laid out (im2col) and multiplied with the kernel, and the gradients are
written out, since autodiff would transpose the columns first (a quarter of a LeNet step):

    cols = im2col(x)            (N, C·k·k, L)
    y    = W · cols             (N, O, L)          L = height · width of the output
    dW   = Σ_n dy · colsᵀ       (O, C·k·k)
    dx   = col2im(Wᵀ · dy)

The compiler finds that forward and backward unfold the same input and does it once.
"""

from __future__ import annotations

import math

import mindspore as ms
from mindspore import Parameter, Tensor, nn, ops
from mindspore.common.initializer import HeUniform, Initializer, Uniform, initializer
from mindspore.ops.operations.array_ops import Col2Im, Im2Col


class _Convolution(nn.Cell):
    """The operator itself, without parameters; one group.

    Inputs: x (N, C, H, W) and weight (O, C, k, k), both float. Output: (N, O, H', W') with
    H' = (H + 2·padding − k) // stride + 1.
    """

    def __init__(self, kernel_size: int, stride: int, padding: int) -> None:
        super().__init__()
        self.kernel_size, self.stride, self.padding = kernel_size, stride, padding
        self.unfold = Im2Col(ksizes=kernel_size, strides=stride, dilations=1, pads=padding)
        self.fold = Col2Im(kernel_size=kernel_size, stride=stride, dilation=1, padding=padding)
        self.product = ops.BatchMatMul()
        self.product_transposed_left = ops.BatchMatMul(transpose_a=True)
        self.product_transposed_right = ops.BatchMatMul(transpose_b=True)
        self.sum = ops.ReduceSum()

    def columns(self, x: Tensor) -> Tensor:
        n, c, _, _ = x.shape
        return self.unfold(x).reshape(n, c * self.kernel_size * self.kernel_size, -1)

    def rows(self, weight: Tensor, n: int) -> Tensor:
        # An explicit batch of the same kernel: a broadcast product would be transposed instead.
        return ops.broadcast_to(weight.reshape(1, weight.shape[0], -1), (n, weight.shape[0], weight[0].size))

    def construct(self, x: Tensor, weight: Tensor) -> Tensor:
        n, _, height, width = x.shape
        y = self.product(self.rows(weight, n), self.columns(x))
        out_height = (height + 2 * self.padding - self.kernel_size) // self.stride + 1
        out_width = (width + 2 * self.padding - self.kernel_size) // self.stride + 1
        return y.reshape(n, weight.shape[0], out_height, out_width)

    def bprop(self, x: Tensor, weight: Tensor, y: Tensor, dy: Tensor) -> tuple[Tensor, Tensor]:
        n, c, height, width = x.shape
        dy = dy.reshape(n, weight.shape[0], -1)
        dweight = self.sum(self.product_transposed_right(dy, self.columns(x)), 0).reshape(weight.shape)
        dcolumns = self.product_transposed_left(self.rows(weight, n), dy)
        size = Tensor([height, width], ms.int32)
        dx = self.fold(dcolumns.reshape(n, c, self.kernel_size * self.kernel_size, -1), size)
        return dx, dweight


class Conv2d(nn.Cell):
    """Two-dimensional convolution with the parameters of `mindspore.nn.Conv2d`; weights move between the two.

    Args:
        in_channels: C of the input (N, C, H, W).
        out_channels: O of the output (N, O, H', W').
        kernel_size: k, the kernel is k × k.
        stride: step of the kernel, the same both ways.
        padding: zeros added on every side.
        has_bias: whether a bias (O,) is added.
        init: initialiser of the weight; the bias is then zero. None: both as `nn.Conv2d` does by default.
        dtype: of the parameters; float64 serves references.
    """

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: int,
        stride: int = 1,
        padding: int = 0,
        has_bias: bool = False,
        init: Initializer | None = None,
        dtype: ms.Type = ms.float32,
    ) -> None:
        super().__init__()
        shape = (out_channels, in_channels, kernel_size, kernel_size)
        self.weight = Parameter(initializer(init or HeUniform(math.sqrt(5)), shape, dtype), name="weight")
        self.has_bias = has_bias
        if has_bias:
            bound = 1 / math.sqrt(in_channels * kernel_size * kernel_size)
            bias = "zeros" if init else Uniform(bound)
            self.bias = Parameter(initializer(bias, (out_channels,), dtype), name="bias")
        self.convolution = _Convolution(kernel_size, stride, padding)

    def construct(self, x: Tensor) -> Tensor:
        y = self.convolution(x, self.weight.astype(x.dtype))
        if self.has_bias:
            y = y + self.bias.reshape(1, -1, 1, 1)
        return y
