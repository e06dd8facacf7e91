"""Gradient centralization (GC): the mean is taken out of the gradient of each unit's weights.

A unit is a row of a dense layer's weights, or a filter of a convolution. With g the gradient of its weights,

    g ← g − mean(g)

Biases, and scales and shifts of norms, are left alone. Where a step is linear in the gradient (SGD, momentum, LARS) the
sum of a unit's weights stays as it is, but for weight decay.

Place: where `clip` stands, once per update; the optimizer adds weight decay afterwards. `grad/norm` is that before.

What not to expect: an effect on a layer whose inputs have a mean of zero and a batch norm behind it: there is little to
take out.
Source: Yong et al., arXiv 2004.01461, equation 1; `mindspore.boost` turns it on with `less_bn`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from msaccel.accel import Method
from msaccel.schema import Config, setting

if TYPE_CHECKING:
    from mindspore import Parameter, nn


@dataclass
class CentralizeSettings:
    layers: str = setting(choices=("all", "convolutions"))


class CentralizeMethod(Method):
    slot = "transform"
    settings = CentralizeSettings
    baseline = "without centralization"

    def refusals(self, settings: CentralizeSettings, config: Config) -> Iterator[str]:
        if settings.layers == "convolutions" and not config.model.has_convolutions:
            yield (
                f"accel.centralize.layers=convolutions finds none in model={config.model.name}; "
                "write accel.centralize.layers=all."
            )

    def transform(self, settings: CentralizeSettings, weights: Sequence[Parameter]) -> nn.Cell:
        from msaccel.accel.centralize.graph import Centralize

        return Centralize(2 if settings.layers == "all" else 3)


METHOD = CentralizeMethod()
