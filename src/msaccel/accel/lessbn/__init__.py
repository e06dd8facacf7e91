"""Less batch normalisation: a residual block keeps only its last norm, and the layer of the classes is normalised.

* `norms`: of a block's norms only that of its last convolution stays; those before it, and that of the shortcut's
  projection, go. The ReLUs and the stem's norm stay.
* `last_layer`: the logits are γ · cos(x, wᵢ), with x the features, wᵢ a class's weights and γ a weight that begins
  at 1; there is no bias.

Place: the network, before training; what is evaluated and kept is the changed network, too.

What not to expect: the same network a little faster. It is another network, and its best learning rate may be another.
Source: `less_bn` of `mindspore.boost`, which cites no paper, for bottleneck blocks.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from msaccel.accel import Method
from msaccel.schema import Config, ResNetSettings, setting

if TYPE_CHECKING:
    from mindspore import nn


@dataclass
class LessBnSettings:
    norms: bool = setting()
    last_layer: bool = setting()


class LessBn(Method):
    slot = "network"
    settings = LessBnSettings
    baseline = "with all norms"

    def refusals(self, settings: LessBnSettings, config: Config) -> Iterator[str]:
        if not isinstance(config.model, ResNetSettings):
            yield (
                f"accel=lessbn removes norms of residual blocks, and model={config.model.name} has none; "
                "write model=resnet50 or leave out lessbn."
            )
        elif config.model.norm != "batch":
            yield (
                f"accel=lessbn removes batch norms, and model.norm={config.model.norm} has none; "
                "write model.norm=batch or leave out lessbn."
            )
        if not settings.norms and not settings.last_layer:
            yield (
                "accel=lessbn changes nothing with accel.lessbn.norms=false and accel.lessbn.last_layer=false; "
                "write true for one of them or leave out lessbn."
            )

    def change_network(self, settings: LessBnSettings, network: nn.Cell) -> None:
        from msaccel.accel.lessbn import network as changes

        if settings.norms:
            changes.remove_inner_norms(network)
        if settings.last_layer:
            changes.normalise_last_layer(network)


METHOD = LessBn()
