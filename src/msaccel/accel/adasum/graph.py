"""Adasum in the graph: many parts, pair by pair, and the step of a part in delta mode."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from mindspore import ParameterTuple, Tensor, nn

from msaccel.kernels import RevertToBase
from msaccel.kernels.flat import Tensors
from msaccel.kernels.graph import Graph
from msaccel.step.part_graphs import StepIfFinite


def combine(parts: Sequence[Tensors], pair: Callable[..., Tensors]) -> Tensors:
    """Adasum over a power of two of parts, by contiguous halves in their order."""
    if len(parts) == 1:
        return parts[0]
    half = len(parts) // 2
    return pair(*combine(parts[:half], pair), *combine(parts[half:], pair))


class PartStep(Graph):
    """The step of one part's own optimizer from the common weights, undone and returned as a difference.

    Inputs: finite, a boolean scalar all parts have agreed on; norm and rate, float32 scalars; the part's gradients.
    Outputs: w_old − w_new for every parameter, and 1.0 if the gradients were clipped.
    """

    def __init__(self, optimizer: nn.Optimizer, base: ParameterTuple, transform: nn.Cell | None) -> None:
        super().__init__()
        self.step = StepIfFinite(optimizer, transform)
        self.take_back = RevertToBase(optimizer.parameters, base)

    def construct(self, finite: Tensor, norm: Tensor, rate: Tensor, *gradients: Tensor) -> tuple[Tensors, Tensor]:
        clipped = self.step(finite, norm, rate, gradients)
        return self.take_back(clipped), clipped
