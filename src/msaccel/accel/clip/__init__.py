"""Gradient clipping: a bound on the gradient of one update.

* `norm`: g ← g · c / max(‖g‖, c), with ‖g‖ over all parameters together: the direction stays. No ε.
* `value`: every element is limited to [−c, c].

Place: after accumulation, reduction and unscaling, once per update; clipping each micro-batch, or scaled gradients,
would be a different, wrong method. The norm before clipping is logged (`grad/norm`), and so is the share of updates
clipped.

What not to expect: no effect where the norm stays below c; it makes unstable training stable and good training no
better. Source: tutorial 002; Pascanu et al., arXiv 1211.5063. `mindspore.ops.clip_by_global_norm` hides the norm and is
deprecated.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from msaccel.accel import Method
from msaccel.schema import setting

if TYPE_CHECKING:
    from mindspore import Parameter, nn


@dataclass
class ClipSettings:
    max_norm: float = setting(at_least=1e-30, at_most=1e30, example="1.0")
    mode: str = setting(choices=("norm", "value"))


class ClipMethod(Method):
    slot = "transform"
    settings = ClipSettings
    baseline = "without clipping"
    metrics = (("clipped", "grad/clipped"),)

    def transform(self, settings: ClipSettings, weights: Sequence[Parameter]) -> nn.Cell:
        from msaccel.accel.clip.graph import Clip

        return Clip(settings)


METHOD = ClipMethod()
