"""Layer freezing: the first layers get no gradients, so that backward passes end before them.

A network has L layers, in the order of its definition; a norm belongs to the convolution or dense layer before it. An
update leaves the first of them as they are, bit for bit, with the optimizer's state: no gradient, no weight decay, no
step of the momentum. With s = `start`, by `form`,

    exact    after the fraction p ≥ s of the job ⌊share · L · (1 + ⌊steps · (p − s) / (1 − s)⌋) / steps⌋  layers
    boost    in a share 1 − `whole` of the updates  ⌊g L / 10⌋  layers, with g from 1 to 9 drawn with odds of 10 − g

Place: `backward`; the later slots see only the gradients of the layers that are not frozen.

What not to expect: half the time for half of the layers. Forward passes stay whole, and nobody has found that freezing
improves the tradeoff between time and accuracy.
Sources: Brock et al., arXiv 1706.04983; Raghu et al., arXiv 1706.05806; `exact` is close to Composer's LayerFreezing,
`boost` to the `grad_freeze` of MindSpore's boost.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from msaccel.accel import Method, filling
from msaccel.errors import ConfigError
from msaccel.schema import Config, of_other_forms, setting

if TYPE_CHECKING:
    from msaccel.step.frozen import LayerSchedule


@dataclass
class FreezeSettings:
    form: str = setting(choices=("exact", "boost"))
    start: float = setting(at_least=0, below=1, example="0.5")
    share: float = setting(above=0, below=1, example="0.5")
    steps: int = setting(at_least=1, at_most=100, example="4")
    whole: float = setting(at_least=0, below=1, example="0.7")


class Freeze(Method):
    slot = "backward"
    settings = FreezeSettings
    baseline = "without freezing"

    def refusals(self, settings: FreezeSettings, config: Config) -> Iterator[str]:
        if (reducing := filling("reduce", config.accel)) not in (None, "sam"):
            yield (
                f"accel={reducing} with accel=freeze: it keeps state for every weight, which frozen ones would leave "
                "behind; keep one of them."
            )
        if (applying := filling("apply", config.accel)) is not None:
            yield (
                f"accel={applying} with accel=freeze: it steps all weights, in directions that they have moved in; "
                "keep one of them."
            )
        if not config.optimizer.by_tensor:
            yield (
                f"optimizer={config.optimizer.name} with accel=freeze cannot leave some weights out of an update; "
                "write optimizer=momentum or optimizer=adamw."
            )

    def without_effect(self, settings: FreezeSettings, config: Config) -> dict[str, str]:
        return of_other_forms(
            "accel.freeze", settings.form, {"start": "exact", "share": "exact", "steps": "exact", "whole": "boost"}
        )

    def fixed_budget(self, settings: FreezeSettings) -> str:
        return "may have frozen other layers in updates that are made already" if settings.form == "exact" else ""

    def frozen_layers(self, settings: FreezeSettings, seed: int, layers: int) -> LayerSchedule:
        from msaccel.accel.freeze.schedules import Draws, Ramp

        if layers < 2:
            raise ConfigError("accel=freeze has nothing to freeze in a network of one layer; write accel=none.")
        if settings.form == "boost":
            return Draws(settings.whole, seed, layers)
        if round(settings.share * layers, 9) < 1:
            raise ConfigError(
                f"accel.freeze.share={settings.share:g} is less than one of the network's {layers} layers; "
                f"write accel.freeze.share={math.ceil(100 / layers) / 100:g} or more."
            )
        return Ramp(settings.start, settings.share, settings.steps, layers)


METHOD = Freeze()
