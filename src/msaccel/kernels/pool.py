"""Max pooling fused with an optional ReLU, which may follow it because relu(max(x)) = max(relu(x)).

On a CPU, MindSpore's own pooling of LeNet's first layer takes as long as its convolutions.
"""

from __future__ import annotations

import mindspore as ms
from mindspore import Tensor, nn

from msaccel.kernels.backend import current_backend
from msaccel.kernels.custom_op import Shape, operator

# Padding that makes H' = ⌈H / stride⌉; half of what is needed, rounded down, comes before the image.
SAME = -1


class MaxPoolOperators(nn.Cell):
    """The operators: from float32 x (N, C, H, W), or in blocks, to y (N, C, H', W') and the index of each maximum."""

    def __init__(self, kernel_size: int, stride: int, padding: int, relu: bool) -> None:
        super().__init__()
        self.numbers = Tensor([kernel_size, stride, padding, int(relu)], ms.int32)

        def shapes(x: Shape, numbers: Shape) -> tuple[Shape, Shape]:
            if padding == SAME:
                sides = tuple(-(-side // stride) for side in x[2:4])
            else:
                sides = tuple((side + 2 * padding - kernel_size) // stride + 1 for side in x[2:4])
            return (*x[:2], *sides, *x[4:]), (*x[:2], *sides, *x[4:])

        settings = (kernel_size, stride, padding)
        self.forward = operator("max_pool", shapes, lambda x, numbers: (x, ms.uint8), settings)
        self.gradient = operator("max_pool_gradient", lambda dy, taps, x, numbers: x, lambda dy, *others: dy)

    def construct(self, x: Tensor) -> tuple[Tensor, Tensor]:
        return self.forward(x, self.numbers)

    def bprop(self, x: Tensor, out: tuple[Tensor, Tensor], dout: tuple[Tensor, Tensor]) -> tuple[Tensor]:
        return (self.gradient(dout[0], out[1], x, self.numbers),)


class MaxPool2d(nn.Cell):
    """The maximum of each window: (N, C, H, W) to (N, C, H', W') with H' = (H + 2·padding − k) // stride + 1.

    Args:
        kernel_size: k, the window is k × k; at most 15.
        stride: the same for height and width.
        padding: on every side, at most k / 2; a padded value is never the maximum.
        relu: whether a ReLU follows.
    """

    def __init__(self, kernel_size: int, stride: int, padding: int = 0, relu: bool = False) -> None:
        super().__init__()
        self.fused = current_backend().library is not None
        if self.fused:
            self.pool = MaxPoolOperators(kernel_size, stride, padding, relu)
        # pad_mode="pad" uses MindSpore's three-dimensional operator, which is half as fast on a CPU.
        padded = {"pad_mode": "pad", "padding": padding} if padding else {"pad_mode": "valid"}
        self.unfused = nn.MaxPool2d(kernel_size, stride, **padded)
        self.relu = nn.ReLU() if relu else nn.Identity()

    def construct(self, x: Tensor) -> Tensor:
        if self.fused and x.dtype == ms.float32:
            return self.pool(x)[0]
        return self.relu(self.unfused(x))
