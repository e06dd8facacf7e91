"""What `accelerate` makes of layers of MindCV that have no operator of MindSpore's to replace: they get another class.

Imports MindCV, so it is imported only where MindCV is in use.
"""

from __future__ import annotations

from mindcv.models.layers.activation import Swish
from mindcv.models.layers.pooling import GlobalAvgPooling
from mindcv.models.layers.squeeze_excite import SqueezeExcite
from mindspore import Tensor, nn

from msaccel.kernels.activations import FusedActivation
from msaccel.kernels.channel_gate import ChannelGate
from msaccel.kernels.swapped import NotSupportedError, is_supported


class SwappedSwish(Swish):
    """For `Swish`, which multiplies x by MindSpore's sigmoid of x.

    Attributes:
        fast: computes what the layer computes.
    """

    fast: FusedActivation

    def make_fast(self) -> FusedActivation:
        return FusedActivation("silu")

    def construct(self, x: Tensor) -> Tensor:
        return self.fast(x) if is_supported(x) else x * self.sigmoid(x)


class SwappedSqueezeExcite(SqueezeExcite):
    """For `SqueezeExcite`, x of shape (N, C, H, W) times what a small network makes of the means of its channels.

    Attributes:
        fast: computes both ends of the layer.
    """

    fast: ChannelGate

    def make_fast(self) -> ChannelGate:
        if type(self.pool) is not GlobalAvgPooling or not self.pool.keep_dims:
            raise NotSupportedError("its pool has been replaced")
        return ChannelGate()

    def construct(self, x: Tensor) -> Tensor:
        supported = is_supported(x) and x.ndim == 4
        gate = self.fast.mean(x) if supported else self.pool(x)
        gate = self.conv_reduce(gate)
        if self.norm:
            gate = self.bn(gate)
        gate = self.gate(self.conv_expand(self.act(gate)))
        supported = supported and is_supported(gate) and gate.shape == (x.shape[0], x.shape[1], 1, 1)
        return self.fast.scale(x, gate) if supported else x * gate


LAYERS: dict[type[nn.Cell], type[nn.Cell]] = {Swish: SwappedSwish, SqueezeExcite: SwappedSqueezeExcite}
