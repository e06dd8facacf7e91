"""Clipping in the graph."""

from __future__ import annotations

import mindspore as ms
from mindspore import Tensor, nn, ops

from msaccel.accel.clip import ClipSettings
from msaccel.kernels import Scale


class Clip(nn.Cell):
    """Clips the gradients of one update.

    Inputs: gradients, a tuple of float32 tensors; norm, their global norm (float32 scalar).
    Outputs: gradients of the same shapes, and 1.0 where they were changed, else 0.0 (float32 scalar).
    """

    def __init__(self, settings: ClipSettings) -> None:
        super().__init__(auto_prefix=False)
        self.by_norm = settings.mode == "norm"
        self.scale = Scale()
        self.bound = Tensor(settings.max_norm, ms.float32)

    def construct(self, gradients: tuple[Tensor, ...], norm: Tensor) -> tuple[tuple[Tensor, ...], Tensor]:
        if self.by_norm:
            clipped = self.scale(gradients, self.bound / ops.maximum(norm, self.bound))
            return clipped, ops.greater(norm, self.bound).astype(ms.float32)
        limited: tuple[Tensor, ...] = ()
        largest: tuple[Tensor, ...] = ()
        for gradient in gradients:
            limited = limited + (ops.minimum(ops.maximum(gradient, -self.bound), self.bound),)
            largest = largest + (ops.abs(gradient).max(),)
        return limited, ops.greater(ops.stack(largest).max(), self.bound).astype(ms.float32)
