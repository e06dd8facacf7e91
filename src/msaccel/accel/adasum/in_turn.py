"""Delta mode with an optimizer that can only move the weights: a graph for each part, one after the other.

One graph for all parts has not been tried since our operators say which parameters they write; before, MindSpore gave
later parts copies of the weights.
"""

from __future__ import annotations

from collections.abc import Sequence

import mindspore as ms
import numpy as np
from mindspore import ParameterTuple, Tensor, nn

from msaccel.kernels import RevertToBase, Subtract
from msaccel.kernels.finite_check import SIZE
from msaccel.kernels.flat import Tensors
from msaccel.kernels.graph import Graph
from msaccel.step.loss_scaler import LossScaler
from msaccel.step.part_graphs import AgreeOnFinite, SetClipped, StepIfFinite


class PartStep(Graph):
    """The step of one part's own optimizer from the common weights, undone and returned as a difference.

    Inputs: finite, a boolean scalar all parts have agreed on; norm and rate, float32 scalars; the part's gradients.
    Outputs: w_old − w_new for every parameter, and 1.0 if the gradients were clipped.
    """

    def __init__(self, optimizer: nn.Optimizer, bases: ParameterTuple, transform: nn.Cell | None) -> None:
        super().__init__()
        self.step = StepIfFinite(optimizer, transform)
        self.take_back = RevertToBase(optimizer.parameters, bases)

    def construct(self, finite: Tensor, norm: Tensor, rate: Tensor, *gradients: Tensor) -> tuple[Tensors, Tensor]:
        clipped = self.step(finite, norm, rate, *gradients)
        return self.take_back(clipped), clipped


class MoveTogether(Graph):
    """Moves the weights and their bases by Adasum of the parts' steps. Inputs: the steps of the parts here."""

    def __init__(self, combine: nn.Cell, weights: ParameterTuple, bases: ParameterTuple) -> None:
        super().__init__()
        self.combine, self.subtract = combine, Subtract(ParameterTuple([*weights, *bases]))

    def construct(self, *differences: Tensor) -> Tensor:
        combined = self.combine(*differences)
        return self.subtract((*combined, *combined))  # of the weights, and of their bases


class StepInTurn:
    """What `StepTogether` does, in several graphs; `gather` is that of `AgreeOnFinite`."""

    def __init__(
        self,
        optimizers: Sequence[nn.Optimizer],
        loss_scaler: LossScaler,
        gather: nn.Cell | None,
        combine: nn.Cell,
        transform: nn.Cell | None,
    ) -> None:
        weights = optimizers[0].parameters
        self.bases = ParameterTuple(weights).clone(prefix="base", init="same")
        self.agree, self.set_clipped = AgreeOnFinite(loss_scaler, gather), SetClipped()
        self.steps = [PartStep(optimizer, self.bases, transform).set_train() for optimizer in optimizers]
        self.move = MoveTogether(combine, weights, self.bases)
        self.zeros = tuple(Tensor(np.zeros(weight.shape, np.float32)) for weight in weights)

    def compile(self, number: Tensor, *inputs: Tensor) -> None:
        parts = len(self.steps)
        self.agree.compile(*[number] * parts)
        for step in self.steps:
            step.compile(Tensor(True), number, number, *self.zeros)
        self.move.compile(*self.zeros * parts)
        self.set_clipped.compile(Tensor(np.zeros(SIZE, np.float32)), *[number] * parts)

    def __call__(self, rate: Tensor, *inputs: Tensor) -> Tensor:
        parts, tensors = len(self.steps), len(self.zeros)
        had_samples, norms, gradients = inputs[:parts], inputs[parts : 2 * parts], inputs[2 * parts :]
        finite, agreed = self.agree(*norms)
        differences: Tensors = ()
        clipped: Tensors = ()
        for part, step in enumerate(self.steps):
            moved, was_clipped = self.zeros, Tensor(0.0, ms.float32)
            if had_samples[part].asnumpy():
                moved, was_clipped = step(finite, norms[part], rate, *gradients[part * tensors : (part + 1) * tensors])
            differences, clipped = differences + tuple(moved), (*clipped, was_clipped)
        self.move(*differences)
        return self.set_clipped(agreed, *clipped)
