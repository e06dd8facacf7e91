"""What `accelerate` puts in the place of MindSpore's operators: cells that are called as the operators are.

Each keeps the operator that it replaces and calls it for tensors of other types or ranks, for empty ones, and for those
of shapes that are not known when the graph is compiled.
"""

from __future__ import annotations

import math
from typing import Any

import mindspore as ms
from mindspore import Tensor, nn, ops

from msaccel.kernels.conv_onednn import OneDnnConvolution, OneDnnTransposedConvolution
from msaccel.kernels.conv_shape import Geometry
from msaccel.kernels.layer_norm import ShiftedLayerNorm
from msaccel.kernels.norm import BatchNormInference, BatchNormTraining

# Products, or values of y, of the smallest convolution that is ours in PyNative mode; of 1 × 1 none is. The file
# docs/decisions.md has what was measured.
_PRODUCTS, _VALUES = 1 << 20, 1 << 14


class NotSupportedError(Exception):
    """The operator is left as it is; the message is the reason."""


def _nothing() -> None: ...


@ops.constexpr(check=False)
def _in_graph(function: Any) -> bool:
    """A function is not handed on in a graph, and None comes."""
    return function is None


def in_graph() -> bool:
    """Whether the call is compiled into a graph, by `ms.jit` too."""
    return _in_graph(_nothing)


def is_supported(x: Tensor, types: tuple[ms.Type, ...] = (ms.float32,)) -> bool:
    """Whether x is of these types, not empty, and the graph is compiled for its shape alone."""
    if x.dtype not in types:
        return False
    if in_graph() and ops.is_sequence_value_unknown(x.shape):
        return False
    return 0 not in x.shape


class Swapped(nn.Cell):
    """Computes what one operator computes.

    Attributes:
        native: MindSpore's operator.
        types: that it computes in.
    """

    types: tuple[ms.Type, ...] = (ms.float32,)

    def __init__(self, native: ops.Primitive) -> None:
        super().__init__(auto_prefix=False)
        self.native = native

    def supports(self, x: Tensor) -> bool:
        return is_supported(x, self.types)

    def supports_images(self, x: Tensor) -> bool:
        """The same for images (N, C, H, W)."""
        return self.supports(x) and x.ndim == 4


class SwappedConvolution(Swapped):
    """For `ops.Conv2D`, in float32 and float16."""

    types = (ms.float32, ms.float16)

    def __init__(self, native: ops.Primitive) -> None:
        super().__init__(native)
        self.fast = OneDnnConvolution(_geometry(native))
        self.steps = math.prod(native.stride[-2:])

    def construct(self, x: Tensor, weight: Tensor) -> Tensor:
        if self.supports_images(x) and self.is_large(x, weight):
            return self.fast(x, weight.astype(x.dtype))
        return self.native(x, weight)

    def is_large(self, x: Tensor, weight: Tensor) -> bool:
        """Whether MindSpore's operator takes longer: in PyNative mode, where ours takes longer to call, for large y."""
        if in_graph() or x.dtype != weight.dtype:  # in mixed precision the operator here casts
            return True
        channels, _, height, width = weight.shape
        values = x.shape[0] * channels * x.shape[2] * x.shape[3] // self.steps
        return height * width > 1 and (values >= _VALUES or values * weight.size // channels >= _PRODUCTS)


class SwappedTransposedConvolution(Swapped):
    """For `ops.Conv2DTranspose`, in float32 and float16."""

    types = (ms.float32, ms.float16)

    def __init__(self, native: ops.Primitive) -> None:
        super().__init__(native)
        self.fast = OneDnnTransposedConvolution(_geometry(native))

    def construct(self, y: Tensor, weight: Tensor, shape: tuple[int, ...]) -> Tensor:
        if self.supports_images(y):
            return self.fast(y, weight.astype(y.dtype), ops.zeros(shape, y.dtype))
        return self.native(y, weight, shape)


class SwappedBatchNorm(Swapped):
    """For `ops.BatchNorm`, of x (N, C, H, W) and vectors (C,), all in float32."""

    def __init__(self, native: ops.Primitive) -> None:
        super().__init__(native)
        self.is_training = native.is_training
        self.train = BatchNormTraining(Tensor([native.epsilon, native.momentum, 0], ms.float32))
        self.infer = BatchNormInference(native.epsilon)

    def construct(self, x: Tensor, gamma: Tensor, beta: Tensor, mean: Tensor, variance: Tensor) -> tuple[Tensor, ...]:
        if self.supports_images(x) and gamma.dtype == ms.float32 and mean.dtype == ms.float32:
            if not self.is_training:
                return self.infer(x, gamma, beta, mean, variance), mean, variance, mean, variance
            y, batch_mean, batch_variance, root = self.train(x, gamma, beta, mean, variance)
            return y, batch_mean, root, batch_mean, batch_variance
        return self.native(x, gamma, beta, mean, variance)


class SwappedLayerNorm(Swapped):
    """For `ops.LayerNorm` over the last dimensions of x, in float32; in PyNative mode it takes longer to call."""

    def __init__(self, native: ops.Primitive) -> None:
        super().__init__(native)
        if native.begin_norm_axis != native.begin_params_axis:
            raise NotSupportedError("begin_params_axis differs from begin_norm_axis")
        self.axis, self.epsilon = native.begin_norm_axis, native.epsilon
        self.fast = ShiftedLayerNorm(self.epsilon)

    def construct(self, x: Tensor, gamma: Tensor, beta: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        if self.supports(x) and self.is_faster() and self.have_shapes(x, gamma, beta):
            leading = x.shape[: self.axis]
            statistics = leading + (1,) * (x.ndim - len(leading))
            y, mean, root = self.fast(x.reshape(-1, gamma.size), gamma.reshape(-1), beta.reshape(-1))
            variance = ops.maximum(1 / ops.square(root) - self.epsilon, 0)
            return y.reshape(x.shape), mean.reshape(statistics), variance.reshape(statistics)
        return self.native(x, gamma, beta)

    def have_shapes(self, x: Tensor, gamma: Tensor, beta: Tensor) -> bool:
        """Whether scale and shift have the last dimensions of x; if not, the error is MindSpore's."""
        right = gamma.shape == x.shape[self.axis :] and beta.shape == gamma.shape
        return right and gamma.dtype == ms.float32 and beta.dtype == ms.float32

    def is_faster(self) -> bool:
        return in_graph()


def _geometry(native: Any) -> Geometry:
    """Of a MindSpore convolution, forward or transposed."""
    kernel = native.kernel_size if isinstance(native.kernel_size, tuple) else (native.kernel_size,) * 2
    padding = {"same": None, "valid": (0, 0, 0, 0), "pad": tuple(native.padding)}[native.pad_mode.lower()]
    return Geometry(kernel, tuple(native.stride[-2:]), tuple(native.dilation[-2:]), padding, native.group)
