"""Gradient accumulation: one update from the gradients of several micro-batches.

With k micro-batches of n_i samples and mean gradients g_i, an update uses

* `mean`: (sum n_i g_i) / (sum n_i), the gradient of the big batch,
* `sum`:  (sum n_i g_i) / b, with b the nominal size of a micro-batch: tutorial 000 adds k mean gradients undivided.

Place: the first slot; `step/graphs.py` adds the gradients up. What follows (reduction, finite check, clipping,
optimizer) happens once per update. A window may be
short at the end of an epoch, is never carried over, and is weighted by the samples it has.

What not to expect: it buys memory, not time, on one device. Batch norm sees micro-batches, so its statistics differ
from the big batch's. Source: MindSpore tutorials "Gradient Accumulation" (000 and 001 in `experiments/`).
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

from msaccel.accel import Method
from msaccel.schema import Config, setting


@dataclass
class AccumSettings:
    steps: int = setting(at_least=2, example="4, or accel=none to accumulate nothing")
    reduction: str = setting(choices=("mean", "sum"))
    lr_scale: str = setting(choices=("none", "sqrt", "linear"))


class AccumMethod(Method):
    slot = "accumulate"
    settings = AccumSettings
    steps_key = "accel.accum.steps"  # and so two baselines: the same micro-batch, and the same global batch

    def refusals(self, settings: AccumSettings, config: Config) -> Iterator[str]:
        if settings.reduction == "sum" and settings.lr_scale != "none":
            yield (
                f"accel.accum.lr_scale={settings.lr_scale} with accel.accum.reduction=sum would count the "
                f"{settings.steps} steps twice; write accel.accum.lr_scale=none or accel.accum.reduction=mean."
            )

    def steps(self, settings: AccumSettings) -> int:
        return settings.steps

    def reduction(self, settings: AccumSettings) -> str:
        return settings.reduction

    def rate_factor(self, settings: AccumSettings) -> float:
        """The factor that `lr_scale` gives; tutorial 001 advises a larger rate for the larger batch."""
        factors = {"none": 1.0, "sqrt": math.sqrt(settings.steps), "linear": float(settings.steps)}
        return factors[settings.lr_scale]


METHOD = AccumMethod()
