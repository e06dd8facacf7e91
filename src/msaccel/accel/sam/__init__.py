"""Sharpness-aware minimisation (SAM): the update's gradient is taken where the loss is highest nearby.

With w the weights and g their gradient over all samples of the update, computed twice on the same samples:

    e = ρ g(w) / ‖g(w)‖,      the update uses g(w + e),      ‖·‖ over all parameters together

Place: reduction, whose result it replaces. Loss scale, finite check, clipping and optimizer act on g(w + e); loss,
accuracy and the running statistics of batch norm are those of the first pass, at w. Every sample costs two forward and
backward passes, and `cost/forward_equivalents` counts both.

What not to expect: a better result per unit of time where the network does not overfit. The gradient at w is that of
the whole update, over all ranks; in the paper each rank uses the gradient of its own share.
Source: Foret et al., arXiv 2010.01412.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from msaccel.accel import BuildContext, Method
from msaccel.schema import setting

if TYPE_CHECKING:
    from msaccel.accel.sam.update import SamUpdate


@dataclass
class SamSettings:
    rho: float = setting(above=0, example="0.05")


class Sam(Method):
    slot = "reduce"
    settings = SamSettings
    baseline = "without the second pass"

    def build_update(self, settings: SamSettings, builder: BuildContext, updates: int) -> SamUpdate:
        from msaccel.accel.sam.update import SamUpdate

        everyone = range(builder.config.device.ranks)
        return SamUpdate(
            builder.network,
            builder.optimizer(),
            builder.config.train.batch_size,
            rho=settings.rho,
            options=builder.options(everyone),
        )


METHOD = Sam()
