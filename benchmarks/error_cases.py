"""The operators whose rounding errors are measured, of msaccel, MindSpore and PyTorch, with random inputs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from mindspore import Tensor, nn, ops

from msaccel import kernels
from msaccel.kernels.attention import CausalAttention


@dataclass
class Case:
    """One operator of some shape.

    Attributes:
        inputs: float32: x, then the parameters in the order of both cells.
        own: msaccel's cell of x.
        native: MindSpore's cell of x.
        torch: the same as a function of all inputs.
    """

    inputs: list[np.ndarray]
    own: nn.Cell
    native: nn.Cell
    torch: Callable[..., torch.Tensor]


Draw = np.random.Generator


def normal(draw: Draw, *shape: int) -> np.ndarray:
    return draw.standard_normal(shape).astype(np.float32)


def convolution(draw: Draw) -> Case:
    kernel, stride = int(draw.choice((1, 3, 5, 7))), int(draw.integers(1, 3))
    padding, channels, out = int(draw.integers(kernel // 2 + 1)), *map(int, draw.integers(1, 40, 2))
    n, height, width = int(draw.integers(1, 9)), *map(int, draw.integers(kernel, 24, 2))
    return convolved(draw, (n, channels, height, width), out, kernel, stride, padding)


class InBlocks(nn.Cell):
    """A 3 × 3 convolution in blocks of 16 channels, as in our ResNets: where AVX-512 is, by Winograd's algorithm."""

    def __init__(self, channels: int, out: int) -> None:
        super().__init__()
        self.conv = kernels.Conv2d(channels, out, 3, 1, 1, blocked=True)

    def construct(self, x: Tensor) -> Tensor:
        n, c, height, width = x.shape
        y = self.conv(x.reshape(n, c // 16, 16, height, width).transpose(0, 1, 3, 4, 2))
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


def dense(draw: Draw) -> Case:
    n, inside, out = map(int, draw.integers(1, 300, 3))
    return Case(
        [normal(draw, n, inside), normal(draw, out, inside), normal(draw, out)],
        kernels.Dense(inside, out),
        nn.Dense(inside, out),
        F.linear,
    )


def batch_norm(draw: Draw) -> Case:
    n, channels, height, width = map(int, draw.integers(2, 33, 4))
    return Case(
        [3 + normal(draw, n, channels, height, width), normal(draw, channels), normal(draw, channels)],
        kernels.BatchNorm2d(channels),
        nn.BatchNorm2d(channels),
        lambda x, gamma, beta: F.batch_norm(x, None, None, gamma, beta, training=True),
    )


def max_pool(draw: Draw) -> Case:
    kernel, stride = int(draw.integers(2, 4)), int(draw.integers(1, 3))
    n, channels, height, width = map(int, draw.integers(4, 33, 4))
    return Case(
        [normal(draw, n, channels, height, width)],
        kernels.MaxPool2d(kernel, stride),
        nn.MaxPool2d(kernel, stride),
        lambda x: F.max_pool2d(x, kernel, stride),
    )


class WithoutShift(nn.LayerNorm):
    """MindSpore's layer norm, whose shift stays 0."""

    def __init__(self, width: int) -> None:
        super().__init__((width,), epsilon=1e-5)
        self.beta.requires_grad = False


def layer_norm(draw: Draw) -> Case:
    n, width = map(int, draw.integers(2, 600, 2))
    return Case(
        [3 + normal(draw, n, width), normal(draw, width)],
        kernels.LayerNorm(width),
        WithoutShift(width),
        lambda x, gamma: F.layer_norm(x, (len(gamma),), gamma),
    )


def gelu(draw: Draw) -> Case:
    x = 3 * normal(draw, *map(int, draw.integers(1, 600, 2)))
    return Case([x], kernels.Gelu(), nn.GELU(approximate=True), lambda x: F.gelu(x, approximate="tanh"))


class Attention(nn.Cell):
    """Of MindSpore's operators: qkv (N · T, 3 C) to (N · T, C)."""

    def __init__(self, heads: int, block: int, size: int) -> None:
        super().__init__()
        self.shape, self.scale = (-1, block, 3, heads, size), size**-0.5
        self.later = Tensor(np.triu(np.full((block, block), -np.inf, np.float32), 1))

    def construct(self, qkv: Tensor) -> Tensor:
        q, k, v = ops.unstack(qkv.reshape(self.shape).transpose(2, 0, 3, 1, 4), axis=0)
        weights = ops.softmax(ops.BatchMatMul(False, True)(q * self.scale, k) + self.later, -1)
        return ops.BatchMatMul()(weights, v).transpose(0, 2, 1, 3).reshape(qkv.shape[0], -1)


def attention(draw: Draw) -> Case:
    heads, block, size = int(draw.integers(1, 5)), int(draw.integers(1, 100)), int(draw.integers(1, 65))
    rows = block * int(draw.integers(1, 5))

    def attend(qkv: torch.Tensor) -> torch.Tensor:
        q, k, v = qkv.reshape(-1, block, 3, heads, size).permute(2, 0, 3, 1, 4)
        return F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).reshape(rows, -1)

    qkv = 2 * normal(draw, rows, 3 * heads * size)
    return Case([qkv], CausalAttention(heads, block), Attention(heads, block, size), attend)


class Loss(nn.Cell):
    """Cross entropy of logits with fixed labels, (1,)."""

    def __init__(self, loss: Callable[..., Any], labels: np.ndarray) -> None:
        super().__init__()
        self.loss, self.labels = loss, Tensor(labels)

    def construct(self, logits: Tensor) -> Tensor:
        return self.loss(logits, self.labels).reshape(1)


def cross_entropy(draw: Draw) -> Case:
    n, classes = int(draw.integers(1, 600)), int(draw.integers(2, 1000))
    labels, own = draw.integers(0, classes, n).astype(np.int32), kernels.CrossEntropy()
    return Case(
        [3 * normal(draw, n, classes)],
        Loss(lambda logits, labels: own(logits, labels)[0], labels),
        Loss(ops.cross_entropy, labels),
        lambda logits: F.cross_entropy(logits, torch.from_numpy(labels).long()).reshape(1),
    )


OPERATORS: dict[str, Callable[[Draw], Case]] = {
    "convolution": convolution,
    "3 × 3 convolution in blocks of channels": winograd,
    "dense layer": dense,
    "batch norm": batch_norm,
    "maximum of windows": max_pool,
    "layer norm": layer_norm,
    "GELU": gelu,
    "causal attention": attention,
    "cross entropy": cross_entropy,
}
