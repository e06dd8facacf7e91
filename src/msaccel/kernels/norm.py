"""Batch normalisation fused with what follows it in a residual network: adding a tensor, and a ReLU."""

from __future__ import annotations

from typing import Any

import mindspore as ms
from mindspore import Tensor, nn, ops
from mindspore.ops.operations._grad_ops import BatchNormGrad

from msaccel.kernels.backend import current_backend
from msaccel.kernels.custom_op import operator

_MOVING = (False, False, False, True, True, False)  # which inputs are the moving statistics


def _forward(x: Any, gamma: Any, *others: Any) -> tuple[Any, ...]:  # shapes, or types
    return x, *[gamma] * 3


def _gradient(dy: Any, x: Any, gamma: Any, *others: Any) -> tuple[Any, ...]:
    return x, gamma, gamma


def _gradient_added(dy: Any, x: Any, gamma: Any, *others: Any) -> tuple[Any, ...]:
    return x, gamma, gamma, x


class BatchNormTraining(nn.Cell):
    """The training operators: x (N, C, H, W) or in blocks, float32 or bfloat16, and float32 vectors (C,).

    Outputs: y, and of the batch: its mean, its variance, and 1 / √(variance + ε). The moving mean and variance are
    updated in place.
    """

    def __init__(self, numbers: Tensor) -> None:
        super().__init__()
        self.numbers = numbers
        self.forward = operator("batch_norm", _forward, _forward, written=_MOVING)
        self.gradient = operator("batch_norm_gradient", _gradient, _gradient)

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
        dx, dgamma, dbeta = self.gradient(dout[0], x, gamma, beta, out[1], out[3], self.numbers)
        return dx, dgamma, dbeta, ops.zeros_like(mean), ops.zeros_like(variance)


class _BatchNormAdded(nn.Cell):
    """The same with a tensor of the shape of x, which is added before the ReLU."""

    def __init__(self, numbers: Tensor) -> None:
        super().__init__()
        self.numbers = numbers
        self.forward = operator("batch_norm", _forward, _forward, written=(*_MOVING, False))
        self.gradient = operator("batch_norm_gradient", _gradient_added, _gradient_added)

    def construct(
        self, x: Tensor, gamma: Tensor, beta: Tensor, mean: Tensor, variance: Tensor, added: Tensor
    ) -> tuple[Tensor, ...]:
        return self.forward(x, gamma, beta, mean, variance, self.numbers, added)

    def bprop(
        self,
        x: Tensor,
        gamma: Tensor,
        beta: Tensor,
        mean: Tensor,
        variance: Tensor,
        added: Tensor,
        out: tuple[Tensor, ...],
        dout: tuple[Tensor, ...],
    ) -> tuple[Tensor, ...]:
        dx, dgamma, dbeta, dadded = self.gradient(dout[0], x, gamma, beta, out[1], out[3], self.numbers, out[0])
        return dx, dgamma, dbeta, ops.zeros_like(mean), ops.zeros_like(variance), dadded


def _inference_operator() -> ops.Custom:
    return operator("batch_norm_inference", lambda x, *others: x, lambda x, *others: x)


class BatchNormInference(nn.Cell):
    """With fixed statistics: x (N, C, H, W), and vectors (C,), all float32, to y of the shape of x.

    The gradient is MindSpore's operator.
    """

    def __init__(self, eps: float) -> None:
        super().__init__()
        self.numbers = Tensor([eps, 0, 0], ms.float32)
        self.forward = _inference_operator()
        self.gradient = BatchNormGrad(is_training=False, epsilon=eps)

    def construct(self, x: Tensor, gamma: Tensor, beta: Tensor, mean: Tensor, variance: Tensor) -> Tensor:
        return self.forward(x, gamma, beta, mean, variance, self.numbers)

    def bprop(
        self, x: Tensor, gamma: Tensor, beta: Tensor, mean: Tensor, variance: Tensor, y: Tensor, dy: Tensor
    ) -> tuple[Tensor, ...]:
        dx, dgamma, dbeta = self.gradient(dy, x, gamma, mean, variance, variance)
        return dx, dgamma, dbeta, ops.zeros_like(mean), ops.zeros_like(variance)


class BatchNorm2d(nn.BatchNorm2d):
    """`nn.BatchNorm2d` with an optional addition and ReLU; the same parameters, and values up to rounding.

    Args:
        num_features: C of the input (N, C, H, W).
        eps: added to the variance.
        momentum: weight of the old value in the moving statistics, MindSpore's convention.
        relu: whether a ReLU follows.

    Inputs: x; a tensor of its shape to add before the ReLU, or None. It may be float32 where x is bfloat16.
    """

    def __init__(self, num_features: int, eps: float = 1e-5, momentum: float = 0.9, relu: bool = False) -> None:
        super().__init__(num_features, eps=eps, momentum=momentum)
        self.fused = current_backend().library is not None
        if self.fused:
            self.numbers = Tensor([eps, 1 - momentum, float(relu)], ms.float32)
            self.norm, self.norm_added = BatchNormTraining(self.numbers), _BatchNormAdded(self.numbers)
            self.inference = _inference_operator()
        self.after = nn.ReLU() if relu else nn.Identity()

    def construct(self, x: Tensor, added: Tensor | None = None) -> Tensor:
        if self.fused and x.dtype in (ms.float32, ms.bfloat16):
            if added is not None:
                added = added.astype(x.dtype)
            return self.trained(x, added) if self.training else self.inferred(x, added)
        y = super().construct(x)
        return self.after(y if added is None else y + added)

    def trained(self, x: Tensor, added: Tensor | None) -> Tensor:
        if added is None:
            out = self.norm(x, self.gamma, self.beta, self.moving_mean, self.moving_variance)
        else:
            out = self.norm_added(x, self.gamma, self.beta, self.moving_mean, self.moving_variance, added)
        return out[0]

    def inferred(self, x: Tensor, added: Tensor | None) -> Tensor:
        vectors = (self.gamma, self.beta, self.moving_mean, self.moving_variance, self.numbers)
        return self.inference(x, *vectors) if added is None else self.inference(x, *vectors, added)
