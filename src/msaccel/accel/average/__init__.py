"""Weight averaging: evaluation uses a mean of the weights that training passes through.

Training itself is untouched. Every `every` updates after the fraction `start` of the job a snapshot w is taken, and the
mean m is, by `form`,

    ema    m ← m + (1 − decay) (w − m),   from m = the first w
    swa    the mean of all snapshots
    lawa   the mean of the latest `last` snapshots

Place: evaluation, and with it `best` and `last`; the optimizer goes on from the trained weights. The running statistics
of batch norm, which belong to the trained weights, are measured anew for the mean.

What not to expect: more than from a rate that decays to zero. Sources: Tarvainen and Valpola, arXiv 1703.01780 (ema);
Izmailov et al., arXiv 1803.05407 (swa); Kaddour, arXiv 2209.14981 (lawa).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from msaccel.accel import Method, updates_within
from msaccel.errors import ConfigError, counted
from msaccel.schema import Config, of_other_forms, setting

if TYPE_CHECKING:
    from mindspore import Parameter

    from msaccel.step.stage import EvaluationWeights


@dataclass
class AverageSettings:
    form: str = setting(choices=("ema", "swa", "lawa"))
    start: float = setting(at_least=0, below=1, example="0.5")
    every: int = setting(at_least=1, example="5")
    decay: float = setting(above=0, below=1, example="0.99")
    last: int = setting(at_least=1, at_most=1000, example="10")


class Average(Method):
    slot = "evaluate"
    settings = AverageSettings
    baseline = "without averaging"

    def without_effect(self, settings: AverageSettings, config: Config) -> dict[str, str]:
        return of_other_forms("accel.average", settings.form, {"decay": "ema", "last": "lawa"})

    def period(self, settings: AverageSettings) -> int | None:
        return settings.every if settings.start == 0 else None

    def fixed_budget(self, settings: AverageSettings) -> str:
        if settings.start == 0 and settings.every == 1:
            return ""
        return "would have averaged the weights of other updates"  # snapshots are counted back from the last update

    def evaluation_weights(
        self, settings: AverageSettings, weights: Sequence[Parameter], updates: int
    ) -> EvaluationWeights:
        from msaccel.accel.average.mean import MeanWeights

        averaged = updates - updates_within(settings.start, updates)
        if averaged <= settings.every:
            instead = "accel.average.every=1" if averaged > 1 else "accel.average.start=0 accel.average.every=1"
            raise ConfigError(
                f"accel.average.every={settings.every} takes one snapshot of the {counted(averaged, 'update')} after "
                f"accel.average.start={settings.start:g}; {f'write {instead} or ' if updates > 1 else ''}train longer."
            )
        return MeanWeights(settings, weights, updates)


METHOD = Average()
