"""Adasum in the graph: everything that follows the gradients of the parts in one graph for each mode."""

from __future__ import annotations

from collections.abc import Sequence

import mindspore as ms
from mindspore import Tensor, nn, ops

from msaccel.kernels import Subtract
from msaccel.kernels.flat import Tensors
from msaccel.kernels.graph import Graph
from msaccel.step.graphs import ApplyGradients
from msaccel.step.part_graphs import CheckParts


class ApplyCombined(Graph):
    """Adasum of the parts' gradients; finite check, transform and apply of the result.

    Inputs: rate, a float32 scalar; the gradients of the first part here, then those of the next. Output: `Outcome`
    (6,).
    """

    def __init__(self, combine: nn.Cell, apply_gradients: ApplyGradients) -> None:
        super().__init__()
        self.combine, self.apply_gradients = combine, apply_gradients
        self.one = apply_gradients.loss_scaler.one

    def construct(self, rate: Tensor, *gradients: Tensor) -> Tensor:
        return self.apply_gradients(self.combine(*gradients), self.one, rate)  # scaled already


class StepTogether(Graph):
    """The update in delta mode: finite check, a step of each part's optimizer, Adasum of the steps, and the move.

    Args:
        optimizers: fused ones, one for each part here, over the same weights.
        check_parts: the finite check over all parts.
        combine: Adasum over all parts, from the tensors of those here.
        transform: of a part's gradient; None for none.

    Inputs: rate, a float32 scalar; for each part here 1 if it had samples, else 0; for each the norm of its gradient;
    the gradients of the first part, then those of the next. Output: `Outcome` (6,).
    """

    def __init__(
        self, optimizers: Sequence[nn.Optimizer], check_parts: CheckParts, combine: nn.Cell, transform: nn.Cell | None
    ) -> None:
        super().__init__()
        weights = optimizers[0].parameters
        self.parts, self.tensors = len(optimizers), len(weights)
        self.optimizers = nn.CellList(optimizers, auto_prefix=False)
        self.check_parts, self.combine, self.transform = check_parts, combine, transform
        self.nothing = Tensor(0.0, ms.float32)
        self.subtract = Subtract(weights)

    def construct(self, rate: Tensor, *inputs: Tensor) -> Tensor:
        had_samples, norms, gradients = (
            inputs[: self.parts],
            inputs[self.parts : 2 * self.parts],
            inputs[2 * self.parts :],
        )
        share = self.nothing
        if self.transform is not None:
            clipped: Tensors = ()
            transformed: Tensors = ()
            for part in range(self.parts):
                own, was_clipped = self.transform(self.of(part, gradients), norms[part])
                clipped = clipped + (was_clipped * had_samples[part],)
                transformed = transformed + tuple(own)
            gradients, share = transformed, ops.stack(clipped).mean()
        finite, outcome = self.check_parts(norms, share)
        differences: Tensors = ()
        for part in range(self.parts):
            should_step = finite * had_samples[part]
            differences = differences + self.optimizers[part].differences(self.of(part, gradients), should_step, rate)
        return ops.depend(outcome, self.subtract(self.combine(*differences)))

    def of(self, part: int, tensors: Tensors) -> Tensors:
        return tensors[part * self.tensors : (part + 1) * self.tensors]
