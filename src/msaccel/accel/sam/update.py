"""The update with SAM: every window goes through the network twice, the second time at perturbed weights."""

from __future__ import annotations

import mindspore as ms
import numpy as np
from mindspore import ParameterTuple, Tensor, nn, ops
from numpy.typing import NDArray

from msaccel.kernels.graph import Graph, as_tensor
from msaccel.step.part_graphs import WindowGradient
from msaccel.step.update import Signals, Update, UpdateOptions, Windows, sizes, windows_here

_LEAST_NORM = 1e-12  # of a gradient; a smaller one is not measured well enough to point anywhere


class Perturb(Graph):
    """w ← w + ρ g / ‖g‖, with the old values kept.

    Inputs: ‖g‖; factor, which the second gradient will be multiplied by; the gradients, in the order of the weights.
    Output: the factor, or NaN if ‖g‖ is not finite, so that the finite check fails even if a ReLU or a maximum hides
    NaN weights in the second pass.
    """

    def __init__(self, weights: ParameterTuple, kept: ParameterTuple, rho: float) -> None:
        super().__init__()
        self.weights, self.kept = weights, kept
        self.rho, self.least = Tensor(rho, ms.float32), Tensor(_LEAST_NORM, ms.float32)
        self.nan = Tensor(float("nan"), ms.float32)

    def construct(self, norm: Tensor, factor: Tensor, *gradients: Tensor) -> Tensor:
        share = self.rho / ops.maximum(norm, self.least)
        for i in range(len(self.weights)):
            ops.assign(self.kept[i], self.weights[i])
            ops.assign(self.weights[i], self.kept[i] + share * gradients[i])
        return ops.select(ops.isfinite(norm), factor, self.nan)


class Restore(Graph):
    """Gives the weights their old values back."""

    def __init__(self, weights: ParameterTuple, kept: ParameterTuple) -> None:
        super().__init__()
        self.weights, self.kept = weights, kept

    def construct(self) -> Tensor:
        for i in range(len(self.weights)):
            ops.assign(self.weights[i], self.kept[i])
        return Tensor(0.0, ms.float32)


class SamUpdate(Update):
    """One update with the gradient at perturbed weights.

    Args:
        network, optimizer, batch_size, options: as for `Update`.
        rho: ρ, the length of the perturbation.
    """

    def __init__(
        self, network: nn.Cell, optimizer: nn.Optimizer, batch_size: int, *, rho: float, options: UpdateOptions
    ) -> None:
        super().__init__(network, optimizer, batch_size, single=False, options=options)
        weights = ParameterTuple(optimizer.parameters)
        kept = weights.clone(prefix="kept", init="same")
        self.window_gradient = WindowGradient(self.accumulator, self.loss_scaler, options.reduce)
        self.perturb, self.restore = Perturb(weights, kept, rho), Restore(weights, kept)

    def compile(self, images: NDArray[np.float32], labels: NDArray[np.int32]) -> None:
        super().compile(images, labels)
        number = Tensor(1.0, ms.float32)
        zeros = [Tensor(np.zeros(weight.shape, np.float32)) for weight in self.optimizer.parameters]
        self.window_gradient.compile(number)
        self.perturb.compile(number, number, *zeros)
        self.restore.compile()

    def __call__(self, ranks: Windows, rate: float) -> Signals:
        here = windows_here(ranks)
        factor = as_tensor(self.factor(ranks))
        samples, measured = self.add_up(here)
        *gradients, norm = self.window_gradient(factor)
        factor = self.perturb(norm, factor, *gradients)
        with self.statistics.untouched():
            self.add_up(here)
        self.restore()
        self.extra_forwards += 3 * sum(sum(sizes(window)) for window in ranks)
        outcome = self.finish_window(factor, as_tensor(rate))
        return Signals(samples, measured, outcome, 2 * self.exchanged(len(ranks)))
