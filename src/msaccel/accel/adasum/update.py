"""The update with Adasum: windows are added up part by part, and the parts' gradients or steps are combined."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import mindspore as ms
import numpy as np
from mindspore import Parameter, ParameterTuple, Tensor, nn, ops
from numpy.typing import NDArray

from msaccel.accel.adasum.cell import PartStep, combine
from msaccel.accel.adasum.exchange import Exchange, Norms
from msaccel.kernels import Adasum, StepFromBase
from msaccel.kernels.flat import Tensors
from msaccel.kernels.graph import Graph
from msaccel.step.graphs import Agree, Apply, Take
from msaccel.step.update import Signals, Update, Windows, windows_here


class Report(Graph):
    """The six values of `Signals.loss_scaler`, from what was agreed and from each part's flag of clipping."""

    def construct(self, agreed: Tensor, *clipped: Tensor) -> Tensor:
        return ops.stack((agreed[0], agreed[1], agreed[2], ops.stack(clipped).mean(), agreed[3], agreed[4]))


class ApplyCombined(Graph):
    """Guard, clip and apply of a gradient that was combined outside of the graph."""

    def __init__(self, apply: Apply) -> None:
        super().__init__()
        self.apply_gradients = apply

    def construct(self, rate: Tensor, *gradients: Tensor) -> Tensor:
        return self.apply_gradients(gradients, rate, rate)


class AdasumUpdate(Update):
    """One update over parts, each of one or more ranks.

    Args:
        network: as for `Update`.
        optimizers: one for each part of this process in delta mode, of one kind and over the same parameters; else a
            single one.
        batch_size: as for `Update`.
        parts: the ranks of each part; a power of two of them.
        delta: combine the steps of the parts' optimizers, not their gradients.
        rank: of this process, which then trains one rank of one part; None if all parts are here.
        common: the further settings of `Update`; `reduce` sums over the ranks of a part.
    """

    def __init__(
        self,
        network: nn.Cell,
        optimizers: Sequence[nn.Optimizer],
        batch_size: int,
        parts: Sequence[Sequence[int]],
        delta: bool,
        rank: int | None = None,
        **common: Any,
    ) -> None:
        super().__init__(network, optimizers[0], batch_size, single=False, **common)
        self.parts, self.delta, self.optimizers = parts, delta, optimizers
        self.here = [part for part in parts if rank is None or rank in part]
        weights = optimizers[0].parameters
        self.zeros = tuple(Tensor(np.zeros(weight.shape, np.float32)) for weight in weights)
        self.take = Take(self.accumulator, self.loss_scaler, self.reduce)
        gather = None
        self.pair = Adasum()
        if rank is not None:
            self.exchange, gather = Exchange([weight.shape for weight in weights], parts, rank), Norms(len(parts))
        if delta:
            self.base = ParameterTuple(weights).clone(prefix="base", init="same")
            self.steps = [PartStep(optimizer, self.base, self.clip).set_train() for optimizer in optimizers]
            self.agree, self.summary, self.move = (
                Agree(self.loss_scaler, gather),
                Report(),
                StepFromBase(weights, self.base),
            )
        else:
            self.combined = ApplyCombined(Apply(self.optimizer, self.loss_scaler, self.clip, scaled=False)).set_train()

    def state(self) -> list[Parameter]:
        optimizers = [parameter for optimizer in self.optimizers for parameter in optimizer.get_parameters()]
        return [*optimizers, *self.loss_scaler.get_parameters(), *(self.base if self.delta else ())]

    def compile(self, images: NDArray[np.float32], labels: NDArray[np.int32]) -> None:
        number, here = Tensor(1.0, ms.float32), len(self.here)
        self.accumulate.compile(Tensor(images), Tensor(labels), number, Tensor(True))
        self.take.compile(number)
        if here == len(self.parts):
            self.pair.compile(*self.zeros, *self.zeros)
        else:
            self.exchange.compile(*self.zeros)
        if self.delta:
            self.agree.compile(*[number] * here)
            self.summary.compile(Tensor(np.zeros(5, np.float32)), *[number] * here)
            for step in self.steps:
                step.compile(Tensor(True), number, number, *self.zeros)
            self.move.compile(*self.zeros)
        else:
            self.combined.compile(number, *self.zeros)

    def __call__(self, ranks: Windows, rate: float) -> Signals:
        lr = Tensor(rate, ms.float32)
        samples: tuple[int, ...] = ()
        measured: tuple[Tensor, ...] = ()
        gradients: list[Tensors | None] = []
        norms: list[Tensor] = []
        for part in self.here:
            weight = self.weight([ranks[rank] for rank in part])
            if not weight:
                gradients.append(None)  # nothing to learn from: a zero vector, and no step
                norms.append(Tensor(0.0, ms.float32))
                continue
            own = windows_here(ranks)
            counts, signals = self.add_up({rank: own[rank] for rank in part if rank in own})
            factor = 1.0 / (len(part) if self.undivided else weight)
            *gradient, norm = self.take(Tensor(factor, ms.float32))
            samples, measured = samples + counts, measured + signals
            gradients.append(tuple(gradient))
            norms.append(norm)
        if self.delta:
            loss_scaler = self.step_and_combine(gradients, norms, lr)
        else:
            loss_scaler = self.combined(lr, *self.combine([gradient or self.zeros for gradient in gradients]))
        return Signals(samples, measured, loss_scaler)

    def combine(self, tensors: Sequence[Tensors]) -> Tensors:
        """Adasum over all parts, of which this process has one or all."""
        if len(self.here) < len(self.parts):
            (own,) = tensors
            return self.exchange(*own)
        return combine(tensors, self.pair)

    def step_and_combine(self, gradients: Sequence[Tensors | None], norms: Sequence[Tensor], lr: Tensor) -> Tensor:
        """Every part steps its own optimizer if all agree; the weights move by Adasum of the steps."""
        good, agreed = self.agree(*norms)
        deltas, clipped = [], []
        for step, gradient, norm in zip(self.steps, gradients, norms, strict=True):
            if gradient is None:
                deltas.append(self.zeros)
                clipped.append(Tensor(0.0, ms.float32))
            else:
                delta, was_clipped = step(good, norm, lr, *gradient)
                deltas.append(delta)
                clipped.append(was_clipped)
        self.move(*self.combine(deltas))
        return self.summary(agreed, *clipped)
