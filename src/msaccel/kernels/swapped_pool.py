"""Max pooling in the place of MindSpore's operators."""

from __future__ import annotations

from mindspore import Tensor, ops

from msaccel.kernels.pool import SAME, MaxPoolOperators
from msaccel.kernels.swapped import NotSupportedError, Swapped

_LARGEST_POOL = 15


class SwappedMaxPool(Swapped):
    """For `ops.MaxPool`, with `pad_mode` "valid" or "same", of x (N, C, H, W) in float32."""

    def __init__(self, native: ops.Primitive) -> None:
        super().__init__(native)
        side, padding = _window(native.kernel_size), SAME if native.pad_mode == "SAME" else 0
        self.smallest = 1 if padding == SAME else side  # side of an image that has a window
        self.fast = MaxPoolOperators(side, _both_ways(native.strides), padding, relu=False)

    def construct(self, x: Tensor) -> Tensor:
        if self.supports_images(x) and min(x.shape[2:]) >= self.smallest:
            return self.fast(x)[0]
        return self.native(x)


class SwappedPaddedMaxPool(Swapped):
    """For `ops.MaxPool3DWithArgmax`, slow code that `nn.MaxPool2d` pads by: of x (N, C, 1, H, W) in float32."""

    def __init__(self, native: ops.Primitive) -> None:
        super().__init__(native)
        if native.ceil_mode or native.dilation != (1, 1, 1):
            raise NotSupportedError("ceil_mode" if native.ceil_mode else "dilation")
        self.side, self.padding = _window(native.ksize), _both_ways(native.pads)
        if 2 * self.padding > self.side:
            raise NotSupportedError("padding of more than half a window")
        self.fast = MaxPoolOperators(self.side, _both_ways(native.strides), self.padding, relu=False)

    def construct(self, x: Tensor) -> tuple[Tensor, Tensor]:
        image = x.squeeze(2)
        if self.supports_images(image) and min(image.shape[2:]) + 2 * self.padding >= self.side:
            y = self.fast(image)[0].expand_dims(2)
            return y, y  # the layer drops the second, which would be the indices
        return self.native(x)


def _window(sizes: tuple[int, ...]) -> int:
    """The side of a square window."""
    if sizes[-2] != sizes[-1] or sizes[-1] > _LARGEST_POOL:
        raise NotSupportedError(f"a window other than a square of at most {_LARGEST_POOL} × {_LARGEST_POOL}")
    return sizes[-1]


def _both_ways(sizes: tuple[int, ...]) -> int:
    """A stride or padding, which must be the same along the height and the width."""
    if sizes[-2] != sizes[-1]:
        raise NotSupportedError("a stride or padding that differs along the height and the width")
    return sizes[-1]
