"""Local SGD: every rank steps on its own, and now and then the weights of all ranks are averaged.

Rank r with weights w_r, and g_r the gradient of its own samples alone, over R ranks:

    w_r ← w_r − η · step(g_r) in every update,      w_r ← (w_1 + … + w_R) / R after every `every` of them

Up to the fraction `start` of the job the update uses the ordinary mean of gradients; `start=0` is plain local SGD,
`start` > 0 is post-local SGD. When weights are averaged, each rank keeps its own momentum or moments (`state=keep`), or
they are averaged, too.

Place: reduction, which it replaces by the average of weights; finite check, clip and optimizer come before that, once
for each rank. All ranks skip an update if the gradient of one is not finite, so in every update they exchange one
number each: what is saved is bytes, not the waiting for the slowest rank. What is evaluated and kept as a checkpoint is
the average over ranks, which go on with their own.

What not to expect: a result as good as that of the mean at a large `every`, or less work. With `every=1` and SGD, with
or without momentum, it is the mean of gradients. Sources: Stich, arXiv 1805.09767; Lin et al., arXiv 1808.07217; for
the averaged momentum Yu et al., arXiv 1905.03817.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from msaccel.accel import BuildContext, Method, filling, updates_within
from msaccel.errors import ConfigError, counted
from msaccel.schema import Config, setting

if TYPE_CHECKING:
    from msaccel.accel.localsgd.update import LocalUpdate


@dataclass
class LocalSgdSettings:
    every: int = setting(at_least=1, example="8")
    start: float = setting(at_least=0, below=1, example="0.5")
    state: str = setting(choices=("keep", "average"))


class LocalSgd(Method):
    slot = "reduce"
    settings = LocalSgdSettings
    baseline = "mean over the same ranks"
    metrics = (("norm_max", "grad/norm_max"),)

    def refusals(self, settings: LocalSgdSettings, config: Config) -> Iterator[str]:
        if config.device.ranks == 1:
            yield (
                f"accel=localsgd needs at least two ranks and device={config.device.name} has one; "
                "write a device with more, such as device=cpu4."
            )
        if other := filling("apply", config.accel):
            yield (
                f"accel={other} with accel=localsgd would work on the weights of one rank where each has its own; "
                "keep one of them."
            )
        if other := filling("evaluate", config.accel):
            yield (
                f"accel={other} with accel=localsgd would have to average over ranks whenever it looks at the weights, "
                "which local SGD is there to avoid; keep one of them."
            )
        if not config.optimizer.by_tensor:
            yield (
                f"optimizer={config.optimizer.name} with accel=localsgd does not move each tensor by itself, so ranks "
                "cannot average what it keeps; write optimizer=momentum or optimizer=adamw."
            )

    def without_effect(self, settings: LocalSgdSettings, config: Config) -> dict[str, str]:
        stateless = config.optimizer.name == "sgd"
        return {"accel.localsgd.state": "optimizer=sgd, which keeps none"} if stateless else {}

    def fixed_budget(self, settings: LocalSgdSettings) -> str:
        return "may have begun the steps of single ranks at another update" if settings.start else ""

    def build_update(self, settings: LocalSgdSettings, builder: BuildContext, updates: int) -> LocalUpdate:
        from msaccel.accel.localsgd.update import LocalUpdate

        first_local, every = updates_within(settings.start, updates), settings.every
        if updates - first_local < every:
            raise ConfigError(
                f"accel.localsgd.every={every} comes to no average in the {counted(updates - first_local, 'update')} "
                f"after accel.localsgd.start={settings.start:g}; write accel.localsgd.every=1 or train longer."
            )
        ranks = range(builder.config.device.ranks)
        return LocalUpdate(
            builder.network,
            builder.optimizer(),
            builder.config.train.batch_size,
            ranks=len(ranks),
            every=every,
            first_local=first_local,
            average_state=settings.state == "average",
            options=builder.options(ranks),
        )


METHOD = LocalSgd()
