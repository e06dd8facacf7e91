"""The convolution cell of msaccel's networks, computed by the selected backend."""

from __future__ import annotations

import math

import mindspore as ms
from mindspore import Parameter, Tensor, nn, ops
from mindspore.common.initializer import HeUniform, Initializer, Uniform, initializer

from msaccel.kernels import conv_im2col, conv_onednn
from msaccel.kernels.backend import MINDSPORE, Products, current_backend
from msaccel.kernels.conv_shape import Geometry
from msaccel.kernels.processor import block


class Conv2d(nn.Cell):
    """Two-dimensional convolution with the parameters of `mindspore.nn.Conv2d`; their weights are interchangeable.

    Args:
        in_channels: C of the input (N, C, H, W).
        out_channels: O of the output (N, O, H', W').
        kernel_size: k, the kernel is k × k.
        stride: step of the kernel, the same both ways.
        padding: zeros added on every side; or at the top, the bottom, the left and the right.
        has_bias: whether a bias (O,) is added.
        init: initialiser of the weight, with a zero bias. None: both as in `nn.Conv2d`.
        dtype: of the parameters; float64, for references, is always computed by im2col.
        dilation: distance between neighbouring taps of the kernel.
        group: number of channel groups convolved separately; C groups make a depthwise convolution.
        blocked: whether the output is in blocks of channels, (N, O / 16, H', W', 16) with AVX-512 and (N, O / 8, H',
            W', 8) with AVX2, if the backend supports that: oneDNN, in float32. The next layers must accept it; this
            cell accepts both layouts. With products in bfloat16 blocks are in bfloat16 too, unless `wide`.
        wide: whether blocks have the type of the input, whatever the products are in.

    Raises:
        ValueError: the channels are not a multiple of the groups; or, when the graph is compiled, the kernel does not
            fit into the padded input.
    """

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: int,
        stride: int = 1,
        padding: int | tuple[int, int, int, int] = 0,
        has_bias: bool = False,
        init: Initializer | None = None,
        dtype: ms.Type = ms.float32,
        dilation: int = 1,
        group: int = 1,
        blocked: bool = False,
        wide: bool = False,
    ) -> None:
        super().__init__()
        if in_channels % group or out_channels % group:
            raise ValueError(f"{in_channels} to {out_channels} channels cannot be parted into {group} groups.")
        shape = (out_channels, in_channels // group, kernel_size, kernel_size)
        self.weight = Parameter(initializer(init or HeUniform(math.sqrt(5)), shape, dtype), name="weight")
        self.has_bias = has_bias
        if has_bias:
            bias = "zeros" if init else Uniform(1 / math.sqrt(math.prod(shape[1:])))
            self.bias = Parameter(initializer(bias, (out_channels,), dtype), name="bias")
        geometry = Geometry.square(kernel_size, stride, padding, dilation, group)
        self.check_size = ops.constexpr(geometry.out_size)
        self.adds_bias = self.blocked = False
        backend = current_backend()
        self.casts = backend.products == Products.FLOAT32
        if backend.library and dtype != ms.float64:
            self.adds_bias = has_bias
            size = block()
            self.blocked = blocked and size is not None and out_channels % size == 0
            cell = conv_onednn.OneDnnBiasedConvolution if has_bias else conv_onednn.OneDnnConvolution
            narrow = not (self.casts or wide)
            self.convolution = cell(geometry, products=backend.products)
            self.to_blocks = cell(geometry, blocked=True, products=backend.products, narrow=narrow)
        elif backend.name == MINDSPORE and dtype != ms.float64:
            self.convolution = ops.Conv2D(
                out_channels, kernel_size, pad_mode="pad", pad=padding, stride=stride, dilation=dilation, group=group
            )
        else:
            self.convolution = conv_im2col.convolution(geometry)

    def construct(self, x: Tensor) -> Tensor:
        self.check_size(x.shape[2], x.shape[3])
        convolution = self.to_blocks if self.blocked and x.dtype != ms.float16 else self.convolution
        kind = x.dtype if self.casts else ms.float32
        if self.adds_bias:
            return convolution(x, self.weight.astype(kind), self.bias.astype(kind))
        y = convolution(x, self.weight.astype(kind))
        if self.has_bias:
            y = y + self.bias.reshape(1, -1, 1, 1)
        return y
