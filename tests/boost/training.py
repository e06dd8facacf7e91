"""Tiny networks, and MindSpore's `Model` that trains them with `mindspore.boost`."""

from __future__ import annotations

from typing import Any

import mindspore as ms
import numpy as np
from mindspore import Tensor, nn
from mindspore.boost import boost
from mindspore.train import Model

DRAW = np.random.default_rng(0).standard_normal
ROWS, LABELS = Tensor(DRAW((6, 4)), ms.float32), Tensor(np.arange(6) % 3, ms.int32)
IMAGES = Tensor(DRAW((6, 3, 6, 6)), ms.float32)


class Dense(nn.Cell):
    """Two dense layers: 4 features, `width`, 3 logits."""

    def __init__(self, width: int = 5) -> None:
        super().__init__()
        self.hidden, self.relu, self.head = nn.Dense(4, width), nn.ReLU(), nn.Dense(width, 3)

    def construct(self, rows: Tensor) -> Tensor:
        return self.head(self.relu(self.hidden(rows)))


class Stack(nn.Cell):
    """Dense layers of 4 features in a `SequentialCell`."""

    def __init__(self, depth: int) -> None:
        super().__init__()
        self.layers = nn.SequentialCell(*(nn.Dense(4, 4) for _ in range(depth)))

    def construct(self, rows: Tensor) -> Tensor:
        return self.layers(rows)


class Block(nn.Cell):
    """A residual block; the kernels of its convolutions are 3 and 3 (basic), or 1, 3 and 1 (bottleneck)."""

    def __init__(self, channels: tuple[int, int], kernels: tuple[int, ...]) -> None:
        super().__init__()
        first, out = channels
        inputs = (first, *(out for _ in kernels[1:]))
        self.convs = nn.CellList([nn.Conv2d(c, out, kernel) for c, kernel in zip(inputs, kernels, strict=True)])
        self.norms = nn.CellList([nn.BatchNorm2d(out) for _ in kernels])
        self.shortcut: nn.Cell = nn.Identity()
        if first != out:
            self.shortcut = nn.SequentialCell(nn.Conv2d(first, out, 1), nn.BatchNorm2d(out))
        self.relu, self.last = nn.ReLU(), len(kernels) - 1

    def construct(self, images: Tensor) -> Tensor:
        hidden = images
        for i in range(self.last):
            hidden = self.relu(self.norms[i](self.convs[i](hidden)))
        return self.relu(self.norms[self.last](self.convs[self.last](hidden)) + self.shortcut(images))


class AugmentedBlock(Block):
    """The same, with `+=`."""

    def construct(self, images: Tensor) -> Tensor:
        out = images
        for i in range(self.last):
            out = self.relu(self.norms[i](self.convs[i](out)))
        out = self.norms[self.last](self.convs[self.last](out))
        out += self.shortcut(images)
        return self.relu(out)


class Residual(nn.Cell):
    """A stem and two residual blocks, the first with a projection; without kernels no blocks."""

    def __init__(self, kernels: tuple[int, ...], block: type[Block] = Block) -> None:
        super().__init__()
        self.stem, self.norm, self.relu = nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU()
        blocks = [block((4, 8), kernels), block((8, 8), kernels)] if kernels else [nn.Conv2d(4, 8, 1)]
        self.blocks, self.head = nn.SequentialCell(*blocks), nn.Dense(8, 3)

    def construct(self, images: Tensor) -> Tensor:
        return self.head(self.blocks(self.relu(self.norm(self.stem(images)))).mean((2, 3)))


def manual(**settings: dict[str, Any]) -> dict[str, Any]:
    """A configuration with these keys on, each with its settings, and all others off."""
    switches = {key: key in settings for key in boost._boost_config_level["O0"]}
    return {"boost": {"mode": "manual", **switches}, **settings}


def model(
    network: nn.Cell,
    config: dict[str, Any] | str = "",
    *,
    level: str = "O1",
    optimizer: nn.Optimizer | None = None,
    metrics: tuple[str, ...] = ("accuracy",),
    **more: Any,
) -> Model:
    """The `Model` of a user, by default with momentum."""
    loss = nn.SoftmaxCrossEntropyWithLogits(sparse=True, reduction="mean")
    chosen = optimizer or nn.Momentum(network.trainable_params(), 0.1, 0.9)
    more |= {"boost_level": level, "boost_config_dict": config}
    return Model(network, loss, chosen, metrics=set(metrics) or None, **more)


def values(network: nn.Cell) -> list[np.ndarray]:
    return [parameter.asnumpy().copy() for parameter in network.trainable_params()]


def moved(network: nn.Cell, before: list[np.ndarray]) -> list[bool]:
    """Which of the network's weights differ from what they were."""
    return [not np.array_equal(a, b) for a, b in zip(values(network), before, strict=True)]
