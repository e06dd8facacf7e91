"""What an update does with gradients: their norm, Adasum, and twenty steps of an optimizer."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from error_cases import Case, Draw, normal
from mindspore import Parameter, Tensor, nn, ops

from msaccel import kernels

STEPS = 20
RATE, DECAY = 0.05, 0.01
ADAM = {"beta1": 0.9, "beta2": 0.99, "eps": 1e-12}  # so small that it does not matter where it is added


class Norm(nn.Cell):
    """Of x, (1,)."""

    def __init__(self, own: bool) -> None:
        super().__init__()
        self.norm = kernels.GlobalNorm() if own else None

    def construct(self, x: Tensor) -> Tensor:
        return (self.norm((x,)) if self.norm else ops.sqrt((x * x).sum())).reshape(1)


def global_norm(draw: Draw) -> Case:
    x = normal(draw, int(10 ** draw.uniform(0, 6.5)))
    return Case([x], Norm(True), Norm(False), lambda x: torch.linalg.vector_norm(x).reshape(1), gradients=False)


class Combined(nn.Cell):
    """Adasum of x and a parameter."""

    def __init__(self, size: int, own: bool) -> None:
        super().__init__()
        self.other = Parameter(np.zeros(size, np.float32), name="other")
        self.combine = kernels.Adasum(2, 1) if own else None

    def construct(self, x: Tensor) -> Tensor:
        if self.combine:
            return self.combine(x, self.other)[0]
        dot = (x * self.other).sum()
        return (1 - dot / (2 * (x * x).sum())) * x + (1 - dot / (2 * (self.other * self.other).sum())) * self.other


def adasum(draw: Draw) -> Case:
    size = int(10 ** draw.uniform(1, 6))

    def combined(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        dot = a @ b
        return (1 - dot / (2 * (a @ a))) * a + (1 - dot / (2 * (b @ b))) * b

    x = normal(draw, size)
    other = x + normal(draw, size) / 2  # as gradients of two batches are alike
    return Case([x, other], Combined(size, True), Combined(size, False), combined, gradients=False)


class Steps(nn.Cell):
    """The weights after steps with the gradients x (steps, n).

    Args:
        decay: λ, if the weights are multiplied with 1 − η λ before each step.
    """

    def __init__(self, optimizer: nn.Optimizer, decay: float = 0.0) -> None:
        super().__init__(auto_prefix=False)
        self.optimizer, self.kept = optimizer, 1 - RATE * decay
        for own in optimizer.get_parameters():
            own.requires_grad = own is optimizer.parameters[0]

    def construct(self, x: Tensor) -> Tensor:
        weight = self.optimizer.parameters[0]
        for gradient in x:
            if self.kept < 1:
                ops.assign(weight, weight * self.kept)
            self.optimizer((gradient,))
        return weight + 0


def weight(size: int) -> Parameter:
    return Parameter(np.zeros(size, np.float32), name="weight")


def inputs_of(draw: Draw) -> tuple[int, list[np.ndarray]]:
    size = int(10 ** draw.uniform(1, 5))
    return size, [normal(draw, STEPS, size), normal(draw, size)]


def trained(
    build: Callable[[list[torch.Tensor]], torch.optim.Optimizer],
) -> Callable[[torch.Tensor, torch.Tensor], torch.Tensor]:
    def train(gradients: torch.Tensor, start: torch.Tensor) -> torch.Tensor:
        weights = start.detach().clone()
        optimizer = build([weights])
        for gradient in gradients.detach():
            weights.grad = gradient
            optimizer.step()
        return weights

    return train


def momentum(draw: Draw) -> Case:
    size, inputs = inputs_of(draw)
    own = kernels.Momentum([weight(size)], [DECAY], learning_rate=RATE, momentum=0.9)
    native = nn.Momentum([weight(size)], RATE, 0.9, weight_decay=DECAY)
    peer = trained(lambda weights: torch.optim.SGD(weights, RATE, 0.9, weight_decay=DECAY))
    return Case(inputs, Steps(own), Steps(native), peer, gradients=False)


def adamw(draw: Draw) -> Case:
    size, inputs = inputs_of(draw)
    own = kernels.Adam([weight(size)], [DECAY], decoupled=True, learning_rate=RATE, **ADAM)
    native = nn.Adam([weight(size)], RATE, **ADAM)
    betas = (ADAM["beta1"], ADAM["beta2"])
    peer = trained(lambda weights: torch.optim.AdamW(weights, RATE, betas, ADAM["eps"], DECAY))
    return Case(inputs, Steps(own), Steps(native, DECAY), peer, gradients=False)


UPDATES: dict[str, Callable[[Draw], Case]] = {
    "norm of all gradients": global_norm,
    "Adasum of two vectors": adasum,
    "20 steps of momentum": momentum,
    "20 steps of AdamW": adamw,
}
