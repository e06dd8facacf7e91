"""Convolutions of all kinds, with random shapes and inputs."""

from __future__ import annotations

from collections.abc import Callable

import torch.nn.functional as F
from error_cases import Case, Draw, normal
from mindspore import Tensor, nn

from msaccel import kernels
from msaccel.kernels.processor import block


def convolution(draw: Draw) -> Case:
    kernel, stride = int(draw.choice((1, 3, 5, 7))), int(draw.integers(1, 3))
    padding, channels, out = int(draw.integers(kernel // 2 + 1)), *map(int, draw.integers(1, 40, 2))
    n, height, width = int(draw.integers(1, 9)), *map(int, draw.integers(kernel, 24, 2))
    return convolved(draw, (n, channels, height, width), out, kernel, stride, padding)


class InBlocks(nn.Cell):
    """A 3 × 3 convolution in blocks of channels, as in our ResNets: by Winograd's algorithm. Needs AVX2 or AVX-512."""

    def __init__(self, channels: int, out: int) -> None:
        super().__init__()
        self.conv, self.size = kernels.Conv2d(channels, out, 3, 1, 1, blocked=True), block()

    def construct(self, x: Tensor) -> Tensor:
        n, c, height, width = x.shape
        y = self.conv(x.reshape(n, c // self.size, self.size, height, width).transpose(0, 1, 3, 4, 2))
        return y.transpose(0, 1, 4, 2, 3).reshape(n, -1, height, width)


def winograd(draw: Draw) -> Case:
    channels, out = (16 * int(size) for size in draw.integers(2, 5, 2))
    n, height, width = int(draw.integers(2, 9)), *map(int, draw.integers(8, 21, 2))
    case = convolved(draw, (n, channels, height, width), out, 3, 1, 1)
    case.own = InBlocks(channels, out)
    return case


def convolved(draw: Draw, shape: tuple[int, ...], out: int, kernel: int, stride: int, padding: int) -> Case:
    pads = {"pad_mode": "pad", "padding": padding} if padding else {"pad_mode": "valid"}
    return Case(
        [normal(draw, *shape), normal(draw, out, shape[1], kernel, kernel)],
        kernels.Conv2d(shape[1], out, kernel, stride, padding),
        nn.Conv2d(shape[1], out, kernel, stride, **pads),
        lambda x, weight: F.conv2d(x, weight, stride=stride, padding=padding),
    )


def accelerated(layer: nn.Cell) -> nn.Cell:
    kernels.accelerate(layer)
    return layer


def grouped(draw: Draw) -> Case:
    groups, inside, outside = map(int, draw.integers(1, 17, 3))
    inside, outside = inside % 4 + 1, outside % 4 + 1  # channels of a group
    channels, out, kernel, stride = groups * inside, groups * outside, int(draw.choice((1, 3, 5))), 1 + groups % 2
    n, height, width = int(draw.integers(1, 9)), *map(int, draw.integers(kernel, 24, 2))

    def layer() -> nn.Cell:
        return nn.Conv2d(channels, out, kernel, stride, "valid", group=groups)

    return Case(
        [normal(draw, n, channels, height, width), normal(draw, out, inside, kernel, kernel)],
        accelerated(layer()),
        layer(),
        lambda x, weight: F.conv2d(x, weight, stride=stride, groups=groups),
    )


def depthwise(draw: Draw) -> Case:
    channels, stride, kernel = int(draw.integers(1, 100)), int(draw.integers(1, 3)), int(draw.choice((3, 5, 7)))
    n, height, width = int(draw.integers(1, 9)), *map(int, draw.integers(1, 33, 2))

    def layer() -> nn.Cell:
        return nn.Conv2d(channels, channels, kernel, stride, "pad", kernel // 2, group=channels)

    return Case(
        [normal(draw, n, channels, height, width), normal(draw, channels, 1, kernel, kernel)],
        accelerated(layer()),
        layer(),
        lambda x, weight: F.conv2d(x, weight, stride=stride, padding=kernel // 2, groups=channels),
    )


def dilated(draw: Draw) -> Case:
    """Of rectangular kernels, with other zeros above than on the left."""
    (height, width), (down, across) = draw.integers(1, 5, 2).tolist(), draw.integers(1, 4, 2).tolist()
    above, left = draw.integers(0, 3, 2).tolist()
    n, channels, out = map(int, draw.integers(1, 17, 3))
    sides = map(int, draw.integers(13, 30, 2))

    def layer() -> nn.Cell:
        padding = (above, above, left, left)
        return nn.Conv2d(channels, out, (height, width), 1, "pad", padding, (down, across))

    return Case(
        [normal(draw, n, channels, *sides), normal(draw, out, channels, height, width)],
        accelerated(layer()),
        layer(),
        lambda x, weight: F.conv2d(x, weight, padding=(above, left), dilation=(down, across)),
    )


def one_dimensional(draw: Draw) -> Case:
    kernel, stride = int(draw.integers(1, 8)), int(draw.integers(1, 4))
    n, channels, out = map(int, draw.integers(1, 40, 3))

    def layer() -> nn.Cell:
        return nn.Conv1d(channels, out, kernel, stride, "valid")

    return Case(
        [normal(draw, n, channels, int(draw.integers(kernel, 200))), normal(draw, out, channels, 1, kernel)],
        accelerated(layer()),
        layer(),
        lambda x, weight: F.conv1d(x, weight[:, :, 0], stride=stride),
    )


def transposed(draw: Draw) -> Case:
    kernel = int(draw.integers(1, 6))
    stride = int(draw.integers(1, min(kernel, 3) + 1))
    n, channels, out = map(int, draw.integers(1, 17, 3))

    def layer() -> nn.Cell:
        return nn.Conv2dTranspose(channels, out, kernel, stride, "valid")

    return Case(
        [normal(draw, n, channels, *map(int, draw.integers(2, 20, 2))), normal(draw, channels, out, kernel, kernel)],
        accelerated(layer()),
        layer(),
        lambda x, weight: F.conv_transpose2d(x, weight, stride=stride),
    )


CONVOLUTIONS: dict[str, Callable[[Draw], Case]] = {
    "convolution": convolution,
    "grouped convolution": grouped,
    "depthwise convolution": depthwise,
    "dilated convolution": dilated,
    "convolution of one dimension": one_dimensional,
    "transposed convolution": transposed,
}
if block():
    CONVOLUTIONS["3 × 3 convolution in blocks of channels"] = winograd
