"""The guard's answer, and what follows from it for its state (`msaccel.step.loss_scaler`), in one operator."""

from __future__ import annotations

import mindspore as ms
from mindspore import Parameter, Tensor, nn

from msaccel.kernels.custom_op import ONE, operator


class Judge(nn.Cell):
    """Whether an update may be applied; the state is changed where it lies. Only with the operators on oneDNN.

    Args:
        state: loss scale, bound, refusals in a row (float32) and good updates (int32), all of them scalars.
        limit: refusals in a row after which nothing is good any more.
        growth_interval: good updates after which the scale doubles; 0: it stays.

    Inputs: the gradients' global norm; the share of them that was clipped (float32 scalars). Outputs: 1 if good, else
    0 (1,); norm, norm, good, clipped, the scale as it was, refusals in a row (6,).
    """

    def __init__(self, state: tuple[Parameter, ...], limit: int, growth_interval: int) -> None:
        super().__init__(auto_prefix=False)
        self.state = state
        self.numbers = Tensor([limit, growth_interval], ms.int32)
        self.judge = operator("guard", lambda *inputs: (ONE, (6,)), lambda norm, *others: (norm, norm))

    def construct(self, norm: Tensor, clipped: Tensor) -> tuple[Tensor, Tensor]:
        scale, bound, in_a_row, good_updates = self.state
        return self.judge(norm, clipped, self.numbers, scale, bound, in_a_row, good_updates)
