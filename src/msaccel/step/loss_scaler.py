"""The finite check: an update whose gradient is not finite is skipped, and the loss scale follows.

The norm serves as the finite check, so a gradient whose square overflows float32 (beyond 1.8e19) counts as not finite.
Every operation counts here: launching operators takes most of a small network's update. With a compiler one operator
checks and counts (`kernels/native/finite_check.cc`).

After `limit` consecutive skips nothing is applied any more: the weights stay those of the last finite update until the
loop, which looks only at log points, ends the job. `on_nonfinite=stop` is a limit of one, `skip` has none.
"""

from __future__ import annotations

from dataclasses import dataclass

import mindspore as ms
from mindspore import Parameter, Tensor, nn, ops

from msaccel.kernels import FiniteCheck, current_backend

NO_LIMIT = 2**31 - 1
LARGEST_SCALE = 2.0**64  # beyond it the loss itself would overflow float32
LARGEST_NORM = 3.4028234663852886e38  # of float32; not infinity, since checkpoints hold finite values


@dataclass(frozen=True)
class Policy:
    """What happens when a gradient is not finite.

    Attributes:
        limit: consecutive skips after which nothing is applied any more.
        scale: the loss scale at the start; 1 for none.
        growth_interval: finite updates after which a dynamic scale doubles; None: the scale stays.
    """

    limit: int = 1
    scale: float = 1.0
    growth_interval: int | None = None

    @property
    def scaled(self) -> bool:
        return self.scale != 1.0 or self.growth_interval is not None


class LossScaler(nn.Cell):
    """The state of a policy: loss scale, consecutive skips, finite updates since the scale last moved.

    `bound` makes the check a single comparison: an update whose norm is below it may be applied. It is 0 once the limit
    is reached.
    """

    def __init__(self, policy: Policy) -> None:
        super().__init__(auto_prefix=False)
        self.policy = policy
        self.limit = float(policy.limit)
        self.scaled = policy.scaled
        self.dynamic = policy.growth_interval is not None
        self.growth_interval = policy.growth_interval or 0
        self.one, self.largest = Tensor(1.0, ms.float32), Tensor(LARGEST_SCALE, ms.float32)
        self.scale, self.bound, self.consecutive_skips, self.good_updates = (
            Parameter(Tensor(value, kind), name=f"guard.{name}", requires_grad=False)
            for name, value, kind in (
                ("scale", policy.scale, ms.float32),
                ("bound", LARGEST_NORM, ms.float32),
                ("in_a_row", 0, ms.float32),
                ("good_updates", 0, ms.int32),
            )
        )  # resume checkpoints have these names
        if current_backend().library:
            state = (self.scale, self.bound, self.consecutive_skips, self.good_updates)
            self.finite_check = FiniteCheck(state, policy.limit, self.growth_interval)

    def scale_factor(self, factor: Tensor) -> Tensor:
        """A factor for the loss, with the loss scale included."""
        return factor * self.scale if self.scaled else factor

    def unscale_factor(self, factor: Tensor) -> Tensor:
        """A factor for the gradients, with the loss scale divided out again."""
        return factor / self.scale if self.scaled else factor

    def check(self, norm: Tensor) -> tuple[Tensor, Tensor]:
        """Whether an update with this global gradient norm may be applied, and the loss scale before the update."""
        finite = ops.less(norm, self.bound)
        if not self.scaled:
            return finite, self.one
        # A copy, made before anything that depends on `finite`; multiplying by 1 instead would be optimised away.
        scale = ops.maximum(self.scale, self.one)
        return ops.depend(finite, scale), scale

    def count_applied(self) -> None:
        ops.assign(self.consecutive_skips, Tensor(0.0, ms.float32))
        if self.dynamic:
            grown = ops.equal(self.good_updates + 1, self.growth_interval)
            ops.assign(self.scale, ops.select(grown, ops.minimum(self.scale * 2, self.largest), self.scale * 1))
            ops.assign(self.good_updates, ops.select(grown, Tensor(0, ms.int32), self.good_updates + 1))

    def count_skipped(self) -> None:
        # At the limit nothing changes any more: from this state the loop reads what ended the job.
        frozen = ops.equal(self.consecutive_skips, self.limit)
        skips = ops.select(frozen, self.consecutive_skips * 1, self.consecutive_skips + 1)
        ops.assign(self.bound, ops.select(ops.equal(skips, self.limit), self.one - 1, self.bound * 1))
        ops.assign(self.consecutive_skips, skips)
        if self.dynamic:
            halved = ops.maximum(self.scale / 2, self.one)
            ops.assign(self.scale, ops.select(frozen, self.scale * 1, halved))
            ops.assign(self.good_updates, Tensor(0, ms.int32))
