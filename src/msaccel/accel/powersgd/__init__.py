"""PowerSGD: ranks exchange gradients as products of two thin matrices, and keep what these leave out for later.

The gradient of a weight with two or more axes is a matrix (n, m) of its first axis and the rest. Rank i of R holds its
share G_i of the mean g = Σ G_i, and its memory E_i, 0 at first. With Q (m, r) from the update before,

    M_i = G_i + E_i,    P = orth(Σ M_i Q),    Q' = Σ M_iᵀ P,    M̂ = P Q'ᵀ,    E_i ← M_i − M̂ / R,    Q ← orth(Q')

and the update uses M̂ in place of g. The sums over ranks are all that is exchanged: r (n + m) numbers in place of n m.
Where that is no less (vectors, small matrices), and in the first `start` updates, g is used itself. Shares are weighted
by samples: what is compressed is the mean over all samples, whichever ranks have them.

Place: reduction, which it replaces; finite check, clip and optimizer see M̂. An update that is skipped leaves E_i and Q
as they were.

What not to expect: less time on one machine, where memory is faster than the products; or the accuracy of the mean at
any r. Source: Vogels et al., arXiv 1905.13727, algorithms 1 and 2; `start` is from PyTorch's PowerSGD hook.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from msaccel.accel import BuildContext, Method
from msaccel.schema import Config, setting

if TYPE_CHECKING:
    from msaccel.accel.powersgd.update import PowerSgdUpdate


@dataclass
class PowerSgdSettings:
    rank: int = setting(at_least=1, example="2")
    start: int = setting(at_least=0, example="1000")


class PowerSgd(Method):
    slot = "reduce"
    settings = PowerSgdSettings
    baseline = "mean over the same ranks"

    def refusals(self, settings: PowerSgdSettings, config: Config) -> Iterator[str]:
        if config.device.ranks == 1:
            yield (
                f"accel=powersgd needs at least two ranks and device={config.device.name} has one; "
                "write a device with more, such as device=cpu4."
            )

    def build_update(self, settings: PowerSgdSettings, builder: BuildContext, updates: int) -> PowerSgdUpdate:
        from msaccel.accel.powersgd.update import build

        return build(settings, builder, updates)


METHOD = PowerSgd()
