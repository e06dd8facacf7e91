"""Adasum: gradients of parts added so that orthogonal ones sum and parallel ones average.

For each parameter tensor, with dot products in float64:

    Adasum(a, b) = (1 − a·b / 2‖a‖²) a + (1 − a·b / 2‖b‖²) b,      Adasum(a, 0) = a

and over 2^x parts by contiguous halves, in rank order. `scope=server`: a part is a server, whose ranks are averaged;
`scope=rank`: every rank is a part. `apply=gradient` puts Adasum in place of the mean. `apply=delta`, the tutorial's:
every part clips its own gradient and steps its own optimizer from the same weights, and Adasum combines the steps.

Place: reduction; in delta mode finite check, clip and optimizer come before it, once per part.

What not to expect: a rate times the number of ranks. Over all ranks 2 to 2.5 times the best single-rank rate is usual;
with means inside servers, the best single-rank rate times the ranks of a server.
Source: tutorial 004; Maleki et al., arXiv 2006.02924; Horovod's guide for the rates.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from msaccel.accel import BuildContext, Method
from msaccel.schema import Config, DeviceSettings, setting

if TYPE_CHECKING:
    from msaccel.accel.adasum.update import AdasumUpdate


@dataclass
class AdasumSettings:
    scope: str = setting(choices=("server", "rank"))
    apply: str = setting(choices=("delta", "gradient"))


def parts(settings: AdasumSettings, device: DeviceSettings) -> list[list[int]]:
    """The ranks of each part, in rank order."""
    size = 1 if settings.scope == "rank" else device.ranks_per_server
    return [list(range(first, first + size)) for first in range(0, device.ranks, size)]


class AdasumMethod(Method):
    slot = "reduce"
    settings = AdasumSettings
    baseline = "mean over the same ranks"
    metrics = (("norm_max", "grad/norm_max"),)

    def refusals(self, settings: AdasumSettings, config: Config) -> Iterator[str]:
        count, device = len(parts(settings, config.device)), config.device
        if count == 1 and device.ranks > 1:
            yield (
                f"accel.adasum.scope=server has one part on the single server of device={device.name} and would only "
                "average; write accel.adasum.scope=rank or a device with more servers, such as device=ascend16."
            )
        elif count == 1:
            yield (
                f"accel=adasum needs at least two parts and device={device.name} has one rank; write a device with "
                "more, such as device=ascend16, or device=cpu4 accel.adasum.scope=rank."
            )
        elif count & (count - 1):
            yield (
                f"accel=adasum combines a power of two of parts and device={device.name} has {count}; "
                "write device.servers or device.ranks_per_server so that it does."
            )
        if settings.apply == "delta" and config.optimizer.own_weights:
            yield (
                f"optimizer={config.optimizer.name} keeps sequences of weights of its own, and the combined step of "
                "accel=adasum moves none but the trained ones; write accel.adasum.apply=gradient."
            )

    def build_update(self, settings: AdasumSettings, builder: BuildContext, updates: int) -> AdasumUpdate:
        from msaccel.accel.adasum.update import build

        return build(settings, builder)


METHOD = AdasumMethod()
