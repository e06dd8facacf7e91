"""The update with Adasum: windows are added up part by part, and the parts' gradients or steps are combined."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import mindspore as ms
import numpy as np
from mindspore import Parameter, ParameterTuple, Tensor, nn, ops
from numpy.typing import NDArray

from msaccel.accel.adasum.cell import Move, Pair, PartStep, Tensors, combine
from msaccel.update import Agree, Apply, Signals, Take, Update, Window, sizes


class Report(nn.Cell):
    """The six values of `Signals.guard`, from what was agreed and from each part's flag of clipping."""

    def construct(self, agreed: Tensor, *clipped: Tensor) -> Tensor:
        return ops.stack((agreed[0], agreed[1], agreed[2], ops.stack(clipped).mean(), agreed[3], agreed[4]))


class ApplyCombined(nn.Cell):
    """Guard, clip and apply of a gradient that was combined outside of the graph."""

    def __init__(self, apply: Apply) -> None:
        super().__init__(auto_prefix=False)
        self.apply_gradients = apply

    def construct(self, rate: Tensor, *gradients: Tensor) -> Tensor:
        return ops.stack(self.apply_gradients(gradients, rate, rate))


class AdasumUpdate(Update):
    """One update over parts, each of one or more ranks.

    Args:
        network: as for `Update`.
        optimizers: one for each part in delta mode, of one kind and over the same parameters; else a single one.
        batch_size: as for `Update`.
        parts: the ranks of each part; a power of two of them.
        delta: combine the steps of the parts' optimizers, not their gradients.
        common: the further settings of `Update`.
    """

    def __init__(
        self,
        network: nn.Cell,
        optimizers: Sequence[nn.Optimizer],
        batch_size: int,
        parts: Sequence[Sequence[int]],
        delta: bool,
        **common: Any,
    ) -> None:
        super().__init__(network, optimizers[0], batch_size, single=False, **common)
        self.parts, self.delta, self.optimizers = parts, delta, optimizers
        weights = optimizers[0].parameters
        self.zeros = tuple(Tensor(np.zeros(weight.shape, np.float32)) for weight in weights)
        self.take = Take(self.accumulator, self.guard)
        self.pair = Pair()
        if delta:
            self.base = ParameterTuple(weights).clone(prefix="base", init="same")
            self.steps = [PartStep(optimizer, self.base, self.clip).set_train() for optimizer in optimizers]
            self.agree, self.summary, self.move = Agree(self.guard), Report(), Move(weights, self.base)
        else:
            self.combined = ApplyCombined(Apply(self.optimizer, self.guard, self.clip, scaled=False)).set_train()

    def state(self) -> list[Parameter]:
        optimizers = [parameter for optimizer in self.optimizers for parameter in optimizer.get_parameters()]
        return [*optimizers, *self.guard.get_parameters(), *(self.base if self.delta else ())]

    def compile(self, images: NDArray[np.float32], labels: NDArray[np.int32]) -> None:
        number = Tensor(1.0, ms.float32)
        self.accumulate.compile(Tensor(images), Tensor(labels), number, Tensor(True))
        self.take.compile(number)
        self.pair.compile(*self.zeros, *self.zeros)
        if self.delta:
            self.agree.compile(*[number] * len(self.parts))
            self.summary.compile(Tensor(np.zeros(5, np.float32)), *[number] * len(self.parts))
            for step in self.steps:
                step.compile(Tensor(True), number, number, *self.zeros)
            self.move.compile(*self.zeros)
        else:
            self.combined.compile(number, *self.zeros)

    def __call__(self, ranks: Sequence[Window], rate: float) -> Signals:
        lr, zero = Tensor(rate, ms.float32), Tensor(0.0, ms.float32)
        samples: list[int] = []
        measured: list[Tensor] = []
        gradients: list[Tensors | None] = []
        norms: list[Tensor] = []
        for part in self.parts:
            window = [micro_batch for rank in part for micro_batch in ranks[rank]]
            if not window:
                gradients.append(None)  # nothing to learn from: a zero vector, and no step
                norms.append(zero)
                continue
            signals, weight = self.add_up(window)
            factor = 1.0 / (len(part) if self.undivided else weight)
            *gradient, norm = self.take(Tensor(factor, ms.float32))
            samples += sizes(window)
            measured += signals
            gradients.append(tuple(gradient))
            norms.append(norm)
        if self.delta:
            guard = self.step_and_combine(gradients, norms, lr)
        else:
            guard = self.combined(lr, *combine([gradient or self.zeros for gradient in gradients], self.pair))
        return Signals(tuple(samples), tuple(measured), guard)

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
        self.move(*combine(deltas, self.pair))
        return self.summary(agreed, *clipped)
