"""What `accelerate` makes of activations, whose operator is no attribute of the layer: they get another class."""

from __future__ import annotations

from mindspore import Tensor, nn, ops

from msaccel.kernels.activations import FusedActivation
from msaccel.kernels.swapped import is_supported


class SwappedGelu(nn.GELU):
    """For `nn.GELU`.

    Attributes:
        fast: computes what MindSpore's operator computes.
    """

    fast: FusedActivation

    def make_fast(self) -> FusedActivation:
        return FusedActivation("gelu_tanh" if self.approximate == "tanh" else "gelu")

    def construct(self, x: Tensor) -> Tensor:
        return self.fast(x) if is_supported(x) else ops.gelu(x, approximate=self.approximate)


class SwappedSilu(nn.SiLU):
    """For `nn.SiLU`.

    Attributes:
        fast: computes what MindSpore's operator computes.
    """

    fast: FusedActivation

    def make_fast(self) -> FusedActivation:
        return FusedActivation("silu")

    def construct(self, x: Tensor) -> Tensor:
        return self.fast(x) if is_supported(x) else ops.silu(x)


ACTIVATIONS: dict[type[nn.Cell], type[nn.Cell]] = {nn.GELU: SwappedGelu, nn.SiLU: SwappedSilu}
