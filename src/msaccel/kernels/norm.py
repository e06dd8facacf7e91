"""Batch normalisation, with a ReLU after it where a network has one."""

from __future__ import annotations

from typing import Any

import mindspore as ms
from mindspore import Tensor, nn, ops

from msaccel.kernels.choice import chosen
from msaccel.kernels.custom import Shape, operator


class _BatchNorm(nn.Cell):
    """The operators in training: x (N, C, H, W) and vectors (C,) in float32.

    Outputs: y, the batch's mean and 1 / √(variance + ε), and the new moving mean and variance.
    """

    def __init__(self, epsilon: float, share: float, relu: bool) -> None:
        super().__init__()
        self.numbers = Tensor([epsilon, share, float(relu)], ms.float32)

        def shapes(x: Shape, *vectors: Shape) -> tuple[Shape, ...]:
            return x, *[vectors[0]] * 4

        def gradient_shapes(dy: Shape, x: Shape, gamma: Shape, *others: Shape) -> tuple[Shape, ...]:
            return x, gamma, gamma

        def types(how_many: int) -> Any:
            return lambda first, *others: (first,) * how_many

        self.forward = operator("batch_norm", shapes, types(5))
        self.gradient = operator("batch_norm_gradient", gradient_shapes, types(3))

    def construct(self, x: Tensor, gamma: Tensor, beta: Tensor, mean: Tensor, variance: Tensor) -> tuple[Tensor, ...]:
        return self.forward(x, gamma, beta, mean, variance, self.numbers)

    def bprop(
        self,
        x: Tensor,
        gamma: Tensor,
        beta: Tensor,
        mean: Tensor,
        variance: Tensor,
        out: tuple[Tensor, ...],
        dout: tuple[Tensor, ...],
    ) -> tuple[Tensor, ...]:
        dx, dgamma, dbeta = self.gradient(dout[0], x, gamma, beta, out[1], out[2], self.numbers)
        return dx, dgamma, dbeta, ops.zeros_like(mean), ops.zeros_like(variance)


class BatchNorm2d(nn.BatchNorm2d):
    """`nn.BatchNorm2d` with its parameters, and its values but for rounding; one pass over memory where it has three.

    Args:
        num_features: C of the input (N, C, H, W).
        eps: added to the variance.
        momentum: share of the old in the moving statistics, as MindSpore counts it.
        relu: whether a ReLU follows.
    """

    def __init__(self, num_features: int, eps: float = 1e-5, momentum: float = 0.9, relu: bool = False) -> None:
        super().__init__(num_features, eps=eps, momentum=momentum)
        self.ours = chosen().library is not None
        if self.ours:
            self.norm = _BatchNorm(eps, 1 - momentum, relu)
        self.after = nn.ReLU() if relu else nn.Identity()

    def construct(self, x: Tensor) -> Tensor:
        if self.ours and self.training and x.dtype == ms.float32:
            out = self.norm(x, self.gamma, self.beta, self.moving_mean, self.moving_variance)
            ops.assign(self.moving_mean, out[3])
            ops.assign(self.moving_variance, out[4])
            return out[0]
        return self.after(super().construct(x))
