"""What becomes of one update: the record of it, and the finite check as one operator.

The finite check decides by the gradients' norm whether an update is applied, and moves the loss scale;
`msaccel.step.loss_scaler` has the same without the operator.
"""

from __future__ import annotations

from typing import NamedTuple

import mindspore as ms
from mindspore import Parameter, Tensor, nn, ops

from msaccel.kernels.custom_op import ONE, operator


class Outcome(NamedTuple):
    """What became of one update. The order of these fields is that of every tensor (6,) that holds them.

    Attributes:
        norm: global gradient norm; over parts, their mean.
        norm_max: the largest norm of a part.
        applied: 1 if the update was applied, else 0.
        clipped: share of parts whose gradient was clipped.
        loss_scale: before this update.
        consecutive_skips: updates that were skipped without one applied between, this one included.
    """

    norm: float
    norm_max: float
    applied: float
    clipped: float
    loss_scale: float
    consecutive_skips: float


SIZE = len(Outcome._fields)
APPLIED, CLIPPED = Outcome._fields.index("applied"), Outcome._fields.index("clipped")


def stack_outcome(
    norm: Tensor, norm_max: Tensor, applied: Tensor, clipped: Tensor, loss_scale: Tensor, consecutive_skips: Tensor
) -> Tensor:
    """An `Outcome` in the graph (6,), from its fields as float32 scalars."""
    return ops.stack((norm, norm_max, applied, clipped, loss_scale, consecutive_skips))


class FiniteCheck(nn.Cell):
    """Decides whether an update may be applied, and changes the state in place. Only with the operators on oneDNN.

    Args:
        state: loss scale, bound, consecutive skips (float32) and finite updates (int32), all of them scalars.
        limit: consecutive skips after which nothing is applied any more.
        growth_interval: finite updates after which the scale doubles; 0: it stays.

    Inputs: the gradients' global norm (float32 scalar), or the norms of parts, whose mean decides (parts,); the share
    of them that was clipped (float32 scalar). Outputs: 1 if the update may be applied, else 0 (1,); its `Outcome` (6,).
    """

    def __init__(self, state: tuple[Parameter, ...], limit: int, growth_interval: int) -> None:
        super().__init__(auto_prefix=False)
        self.state = state
        self.numbers = Tensor([limit, growth_interval], ms.int32)
        self.check = operator(
            "finite_check",
            lambda *inputs: (ONE, (SIZE,)),
            lambda norm, *others: (norm, norm),
            written=(False,) * 3 + (True,) * len(state),
        )

    def construct(self, norm: Tensor, clipped: Tensor) -> tuple[Tensor, Tensor]:
        scale, bound, consecutive_skips, good_updates = self.state
        return self.check(norm, clipped, self.numbers, scale, bound, consecutive_skips, good_updates)
