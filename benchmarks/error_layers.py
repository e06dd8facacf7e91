"""Layers other than convolutions, and the loss, with random shapes and inputs."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from error_cases import Case, Draw, normal
from mindspore import Parameter, Tensor, nn, ops

from msaccel import kernels
from msaccel.kernels.attention import CausalAttention
from msaccel.kernels.channel_gate import ChannelGate


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


def activation(make: Callable[[], nn.Cell], of_torch: Callable[[torch.Tensor], torch.Tensor]) -> Callable[[Draw], Case]:
    def case(draw: Draw) -> Case:
        fast = make()
        kernels.accelerate(fast)
        return Case([3 * normal(draw, *map(int, draw.integers(1, 600, 2)))], fast, make(), of_torch)

    return case


class Gated(nn.Cell):
    """Images (N, C, H, W) times the means of their channels."""

    def __init__(self, own: bool) -> None:
        super().__init__()
        self.gate = ChannelGate() if own else None

    def construct(self, x: Tensor) -> Tensor:
        if self.gate:
            return self.gate.scale(x, self.gate.mean(x))
        return x * x.mean((2, 3), keep_dims=True)


def gated(draw: Draw) -> Case:
    x = 1 + normal(draw, *map(int, draw.integers(1, 65, 4)))
    return Case([x], Gated(True), Gated(False), lambda x: x * x.mean((2, 3), keepdim=True))


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


class Added(nn.Cell):
    """Batch norm of x, plus a parameter, then a ReLU."""

    def __init__(self, shape: tuple[int, ...], own: bool) -> None:
        super().__init__()
        self.own, self.added = own, Parameter(np.zeros(shape, np.float32), name="added")
        self.norm = kernels.BatchNorm2d(shape[1], relu=True) if own else nn.BatchNorm2d(shape[1])

    def construct(self, x: Tensor) -> Tensor:
        return self.norm(x, self.added) if self.own else ops.relu(self.norm(x) + self.added)


def added_batch_norm(draw: Draw) -> Case:
    shape = tuple(map(int, draw.integers(2, 33, 4)))
    vectors = [normal(draw, shape[1]) for _ in range(2)]

    def normed(x: torch.Tensor, added: torch.Tensor, gamma: torch.Tensor, beta: torch.Tensor) -> torch.Tensor:
        return F.relu(F.batch_norm(x, None, None, gamma, beta, training=True) + added)

    inputs = [3 + normal(draw, *shape), normal(draw, *shape), *vectors]
    return Case(inputs, Added(shape, True), Added(shape, False), normed)


class Embedded(nn.Cell):
    """Rows of a table (vocabulary, C) for fixed characters (N, T), and of their positions: (N · T, C)."""

    def __init__(self, characters: np.ndarray, width: int, own: bool) -> None:
        super().__init__()
        self.characters, self.width = Tensor(characters), width
        self.positions = Parameter(np.zeros((characters.shape[1], width), np.float32), name="positions")
        self.embed = kernels.Embedding() if own else None

    def construct(self, table: Tensor) -> Tensor:
        if self.embed:
            return self.embed(self.characters, table, self.positions)
        return (ops.gather(table, self.characters, 0) + self.positions).reshape(-1, self.width)


def embedding(draw: Draw) -> Case:
    n, block, vocabulary, width = map(int, draw.integers(1, 100, 4))
    characters = draw.integers(0, vocabulary, (n, block)).astype(np.int32)
    return Case(
        [normal(draw, vocabulary, width), normal(draw, block, width)],
        Embedded(characters, width, True),
        Embedded(characters, width, False),
        lambda table, positions: (table[torch.from_numpy(characters).long()] + positions).reshape(-1, width),
    )


LAYERS: dict[str, Callable[[Draw], Case]] = {
    "dense layer": dense,
    "batch norm": batch_norm,
    "batch norm, addition and ReLU": added_batch_norm,
    "maximum of windows": max_pool,
    "layer norm": layer_norm,
    "GELU": activation(lambda: nn.GELU(approximate=False), F.gelu),
    "GELU with tanh": activation(nn.GELU, partial(F.gelu, approximate="tanh")),
    "SiLU": activation(nn.SiLU, F.silu),
    "channels times their means": gated,
    "embedding": embedding,
    "causal attention": attention,
    "cross entropy": cross_entropy,
}
