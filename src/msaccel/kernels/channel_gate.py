"""The two ends of a squeeze-and-excitation layer (arXiv 1709.01507): means of channels, and channels times a number."""

from __future__ import annotations

from mindspore import Tensor, nn

from msaccel.kernels.custom_op import Shape, operator


class ChannelMean(nn.Cell):
    """The mean of each channel: float32 x (N, C, H, W) to (N, C, 1, 1)."""

    def __init__(self) -> None:
        super().__init__()
        self.forward = operator("channel_mean", lambda x: (x[0], x[1], 1, 1), lambda x: x)
        self.gradient = operator("channel_mean_gradient", lambda dmean, x: x, lambda dmean, x: dmean)

    def construct(self, x: Tensor) -> Tensor:
        return self.forward(x)

    def bprop(self, x: Tensor, mean: Tensor, dmean: Tensor) -> tuple[Tensor]:
        return (self.gradient(dmean, x),)


class ChannelScale(nn.Cell):
    """x · factor: float32 x (N, C, H, W) and a factor for each channel (N, C, 1, 1)."""

    def __init__(self) -> None:
        super().__init__()

        def shapes(dy: Shape, x: Shape, factor: Shape) -> tuple[Shape, Shape]:
            return x, factor

        self.forward = operator("channel_scale", lambda x, factor: x, lambda x, factor: x)
        self.gradient = operator("channel_scale_gradient", shapes, lambda dy, x, factor: (x, factor))

    def construct(self, x: Tensor, factor: Tensor) -> Tensor:
        return self.forward(x, factor)

    def bprop(self, x: Tensor, factor: Tensor, y: Tensor, dy: Tensor) -> tuple[Tensor, Tensor]:
        return self.gradient(dy, x, factor)


class ChannelGate(nn.Cell):
    """Both, for a layer that computes the factors from the means in between."""

    def __init__(self) -> None:
        super().__init__()
        self.mean, self.scale = ChannelMean(), ChannelScale()
