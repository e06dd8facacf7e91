"""What `accelerate` puts in the place of MindSpore's operators: cells that are called as the operators are.

Each keeps the operator that it replaces and calls it for tensors of other types or ranks, and of shapes that are not
known when the graph is compiled.
"""

from __future__ import annotations

from typing import Any

import mindspore as ms
from mindspore import Tensor, nn, ops

from msaccel.kernels.conv_onednn import OneDnnConvolution, OneDnnTransposedConvolution
from msaccel.kernels.conv_shape import Geometry
from msaccel.kernels.gelu import Gelu
from msaccel.kernels.layer_norm import Normalise
from msaccel.kernels.norm import BatchNormInference, BatchNormTraining
from msaccel.kernels.pool import MaxPoolOperators

_LARGEST_POOL = 15


class NotSupportedError(Exception):
    """The operator is left as it is; the message is the reason."""


def has_known_shape(x: Tensor) -> bool:
    """Whether a graph is compiled for tensors of this shape alone; custom operators take no others."""
    return not ops.is_sequence_value_unknown(x.shape)


class Swapped(nn.Cell):
    """Computes what one operator computes.

    Attributes:
        native: MindSpore's operator.
    """

    def __init__(self, native: ops.Primitive) -> None:
        super().__init__(auto_prefix=False)
        self.native = native


class SwappedConvolution(Swapped):
    """For `ops.Conv2D`, in float32 and float16."""

    def __init__(self, native: ops.Primitive) -> None:
        super().__init__(native)
        self.fast = OneDnnConvolution(_geometry(native))

    def construct(self, x: Tensor, weight: Tensor) -> Tensor:
        if x.dtype in (ms.float32, ms.float16) and has_known_shape(x):
            return self.fast(x, weight.astype(x.dtype))
        return self.native(x, weight)


class SwappedTransposedConvolution(Swapped):
    """For `ops.Conv2DTranspose`, in float32 and float16."""

    def __init__(self, native: ops.Primitive) -> None:
        super().__init__(native)
        self.fast = OneDnnTransposedConvolution(_geometry(native))

    def construct(self, y: Tensor, weight: Tensor, shape: tuple[int, ...]) -> Tensor:
        if y.dtype in (ms.float32, ms.float16) and has_known_shape(y):
            return self.fast(y, weight.astype(y.dtype), ops.zeros(shape, y.dtype))
        return self.native(y, weight, shape)


class SwappedBatchNorm(Swapped):
    """For `ops.BatchNorm`, of x (N, C, H, W) in float32."""

    def __init__(self, native: ops.Primitive) -> None:
        super().__init__(native)
        self.is_training = native.is_training
        self.train = BatchNormTraining(Tensor([native.epsilon, native.momentum, 0], ms.float32))
        self.infer = BatchNormInference(native.epsilon)

    def construct(self, x: Tensor, gamma: Tensor, beta: Tensor, mean: Tensor, variance: Tensor) -> tuple[Tensor, ...]:
        if x.dtype == ms.float32 and has_known_shape(x) and x.ndim == 4:
            if not self.is_training:
                return self.infer(x, gamma, beta, mean, variance), mean, variance, mean, variance
            out = self.train(x, gamma, beta, mean, variance)
            ops.assign(mean, out[3])
            ops.assign(variance, out[4])
            return out
        return self.native(x, gamma, beta, mean, variance)


class SwappedMaxPool(Swapped):
    """For `ops.MaxPool` without padding, of x (N, C, H, W) in float32."""

    def __init__(self, native: ops.Primitive) -> None:
        super().__init__(native)
        (_, _, height, width), (_, _, down, right) = native.kernel_size, native.strides
        if native.pad_mode != "VALID":
            raise NotSupportedError(f'pad_mode="{native.pad_mode.lower()}"')
        if height != width or down != right or height > _LARGEST_POOL:
            raise NotSupportedError(f"a window other than a square of at most {_LARGEST_POOL} × {_LARGEST_POOL}")
        self.fast = MaxPoolOperators(height, down, padding=0, relu=False)

    def construct(self, x: Tensor) -> Tensor:
        if x.dtype == ms.float32 and has_known_shape(x) and x.ndim == 4:
            return self.fast(x)[0]
        return self.native(x)


class SwappedLayerNorm(Swapped):
    """For `ops.LayerNorm` over the last dimension of x, in float32."""

    def __init__(self, native: ops.Primitive) -> None:
        super().__init__(native)
        if native.begin_norm_axis != -1 or native.begin_params_axis != -1:
            raise NotSupportedError("axes other than the last")
        self.eps = native.epsilon

    def construct(self, x: Tensor, gamma: Tensor, beta: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        if x.dtype == ms.float32 and has_known_shape(x):
            y, mean, variance = Normalise(x.shape[-1], self.eps)(x.reshape(-1, x.shape[-1]), gamma, beta)
            rows = x.shape[:-1] + (1,)
            return y.reshape(x.shape), mean.reshape(rows), variance.reshape(rows)
        return self.native(x, gamma, beta)


class SwappedGelu(nn.GELU):
    """For `nn.GELU`, whose operator is not among its attributes; a cell is given this class."""

    def construct(self, x: Tensor) -> Tensor:
        return Gelu()(x)


OPERATORS: dict[str, type[Swapped]] = {
    "BatchNorm": SwappedBatchNorm,
    "Conv2D": SwappedConvolution,
    "Conv2DBackpropInput": SwappedTransposedConvolution,
    "Conv2DTranspose": SwappedTransposedConvolution,
    "LayerNorm": SwappedLayerNorm,
    "MaxPool": SwappedMaxPool,
}


def _geometry(native: Any) -> Geometry:
    """Of a MindSpore convolution, forward or transposed."""
    kernel = native.kernel_size if isinstance(native.kernel_size, tuple) else (native.kernel_size,) * 2
    padding = {"same": None, "valid": (0, 0, 0, 0), "pad": tuple(native.padding)}[native.pad_mode.lower()]
    return Geometry(kernel, tuple(native.stride[-2:]), tuple(native.dilation[-2:]), padding, native.group)
