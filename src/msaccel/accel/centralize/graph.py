"""Gradient centralization in the graph."""

from __future__ import annotations

import mindspore as ms
from mindspore import Tensor, nn


class Centralize(nn.Cell):
    """Takes the mean over all axes but the first out of each gradient.

    Args:
        axes: tensors with fewer axes stay as they are.

    Inputs: gradients, a tuple of float32 tensors; norm, which this method does not need.
    Outputs: gradients of the same shapes, and 1.0, because every update is changed (float32 scalar).
    """

    def __init__(self, axes: int) -> None:
        super().__init__(auto_prefix=False)
        self.axes = axes

    def construct(self, gradients: tuple[Tensor, ...], norm: Tensor) -> tuple[tuple[Tensor, ...], Tensor]:
        centred: tuple[Tensor, ...] = ()
        for gradient in gradients:
            if gradient.ndim >= self.axes:
                gradient = gradient - gradient.mean(tuple(range(1, gradient.ndim)), keep_dims=True)
            centred = centred + (gradient,)
        return centred, Tensor(1.0, ms.float32)
