"""Layer normalisation with a scale and without a shift, and with a gradient of its own."""

from __future__ import annotations

import mindspore as ms
import numpy as np
from mindspore import Parameter, Tensor, nn, ops
from mindspore.common.initializer import initializer


class _LayerNorm(nn.Cell):
    """MindSpore's forward pass, with a backward pass made of products, which is twice as fast as MindSpore's."""

    def __init__(self, width: int, eps: float) -> None:
        super().__init__()
        self.eps, self.shift = eps, Tensor(np.zeros(width, np.float32))
        self.mean = Tensor(np.full((width, 1), 1 / width, np.float32))  # as a matrix: reductions are slow on the CPU
        self.forward, self.product = ops.LayerNorm(1, 1, eps), ops.MatMul()

    def construct(self, x: Tensor, gamma: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        return self.forward(x, gamma, self.shift)

    def bprop(
        self, x: Tensor, gamma: Tensor, out: tuple[Tensor, ...], dout: tuple[Tensor, ...]
    ) -> tuple[Tensor, Tensor]:
        _, mean, variance = out
        deviation = ops.rsqrt(variance + self.eps)
        normalised = (x - mean) * deviation
        dgamma = dout[0] * normalised
        d = dout[0] * gamma
        dx = d - self.product(d, self.mean) - normalised * self.product(d * normalised, self.mean)
        return deviation * dx, dgamma.sum(0)


class LayerNorm(nn.Cell):
    """(x − mean) / √(variance + ε) · γ over the last dimension of x (N, C), in float32.

    Args:
        width: C.
        eps: ε.
    """

    def __init__(self, width: int, eps: float = 1e-5) -> None:
        super().__init__()
        self.gamma = Parameter(initializer("ones", width))
        self.normalise = _LayerNorm(width, eps)

    def construct(self, x: Tensor) -> Tensor:
        return self.normalise(x.astype(ms.float32), self.gamma)[0]
