"""The update with Adasum: windows are added up part by part, and the parts' gradients or steps are combined."""

from __future__ import annotations

from collections.abc import Sequence

import mindspore as ms
import numpy as np
from mindspore import Parameter, ParameterTuple, Tensor, nn
from numpy.typing import NDArray

from msaccel.accel import BuildContext
from msaccel.accel.adasum import AdasumSettings, parts
from msaccel.accel.adasum.all_reduce import AdasumAllReduce, bytes_exchanged
from msaccel.accel.adasum.graph import PartStep, combine
from msaccel.checkpoint.state import by_name
from msaccel.distributed.collectives import GatherNorms
from msaccel.kernels import Adasum, StepFromBase
from msaccel.kernels.finite_check import SIZE
from msaccel.kernels.flat import Tensors
from msaccel.kernels.graph import Graph
from msaccel.step.graphs import ApplyGradients
from msaccel.step.part_graphs import AgreeOnFinite, SetClipped, WindowGradient
from msaccel.step.update import Signals, Update, UpdateOptions, Windows, windows_here


class ApplyCombined(Graph):
    """Finite check, transform and apply of a gradient that was combined outside of the graph."""

    def __init__(self, apply_gradients: ApplyGradients) -> None:
        super().__init__()
        self.apply_gradients = apply_gradients

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
        options: as for `Update`; `reduce` sums over the ranks of a part.
    """

    def __init__(
        self,
        network: nn.Cell,
        optimizers: Sequence[nn.Optimizer],
        batch_size: int,
        *,
        parts: Sequence[Sequence[int]],
        delta: bool,
        options: UpdateOptions,
        rank: int | None = None,
    ) -> None:
        super().__init__(network, optimizers[0], batch_size, single=False, options=options)
        self.parts, self.delta, self.optimizers = parts, delta, optimizers
        self.here = [part for part in parts if rank is None or rank in part]
        weights = optimizers[0].parameters
        self.zeros = tuple(Tensor(np.zeros(weight.shape, np.float32)) for weight in weights)
        self.bytes_exchanged = bytes_exchanged([weight.size for weight in weights], len(parts), len(parts[0]))
        self.window_gradient = WindowGradient(self.accumulator, self.loss_scaler, options.reduce)
        gather = None
        self.pair = Adasum()
        if rank is not None:
            self.all_reduce = AdasumAllReduce([weight.shape for weight in weights], parts, rank)
            gather = GatherNorms(len(parts))
        if delta:
            self.base = ParameterTuple(weights).clone(prefix="base", init="same")
            self.steps = [PartStep(optimizer, self.base, options.transform).set_train() for optimizer in optimizers]
            self.agree, self.set_clipped = AgreeOnFinite(self.loss_scaler, gather), SetClipped()
            self.move = StepFromBase(weights, self.base)
        else:
            apply_gradients = ApplyGradients(self.optimizer, self.loss_scaler, options.transform, scaled=False)
            self.apply_combined = ApplyCombined(apply_gradients).set_train()

    def state_dict(self) -> dict[str, Parameter]:
        optimizers = [parameter for optimizer in self.optimizers for parameter in optimizer.get_parameters()]
        return by_name([*optimizers, *self.loss_scaler.get_parameters(), *(self.base if self.delta else ())])

    def compile(self, images: NDArray[np.float32], labels: NDArray[np.int32]) -> None:
        number, here = Tensor(1.0, ms.float32), len(self.here)
        self.accumulate.compile(Tensor(images), Tensor(labels), number, Tensor(True))
        self.window_gradient.compile(number)
        if here == len(self.parts):
            self.pair.compile(*self.zeros, *self.zeros)
        else:
            self.all_reduce.compile(*self.zeros)
        if self.delta:
            self.agree.compile(*[number] * here)
            self.set_clipped.compile(Tensor(np.zeros(SIZE, np.float32)), *[number] * here)
            for step in self.steps:
                step.compile(Tensor(True), number, number, *self.zeros)
            self.move.compile(*self.zeros)
        else:
            self.apply_combined.compile(number, *self.zeros)

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
            counts, micro_batches = self.add_up({rank: own[rank] for rank in part if rank in own})
            factor = 1.0 / (len(part) if self.options.reduction == "sum" else weight)
            *gradient, norm = self.window_gradient(Tensor(factor, ms.float32))
            samples, measured = samples + counts, measured + micro_batches
            gradients.append(tuple(gradient))
            norms.append(norm)
        if self.delta:
            outcome = self.step_and_combine(gradients, norms, lr)
        else:
            outcome = self.apply_combined(lr, *self.combine([gradient or self.zeros for gradient in gradients]))
        return Signals(samples, measured, outcome, self.bytes_exchanged)

    def combine(self, tensors: Sequence[Tensors]) -> Tensors:
        """Adasum over all parts, of which this process has one or all."""
        if len(self.here) < len(self.parts):
            (own,) = tensors
            return self.all_reduce(*own)
        return combine(tensors, self.pair)

    def step_and_combine(self, gradients: Sequence[Tensors | None], norms: Sequence[Tensor], lr: Tensor) -> Tensor:
        """Every part steps its own optimizer if all agree; the weights move by Adasum of the steps."""
        finite, agreed = self.agree(*norms)
        deltas, clipped = [], []
        for step, gradient, norm in zip(self.steps, gradients, norms, strict=True):
            if gradient is None:
                deltas.append(self.zeros)
                clipped.append(Tensor(0.0, ms.float32))
            else:
                delta, was_clipped = step(finite, norm, lr, *gradient)
                deltas.append(delta)
                clipped.append(was_clipped)
        self.move(*self.combine(deltas))
        return self.set_clipped(agreed, *clipped)


def build(settings: AdasumSettings, builder: BuildContext) -> AdasumUpdate:
    """The update of a job; in delta mode with an optimizer for each part of this process."""
    device, weights = builder.config.device, builder.network.trainable_params()
    each = parts(settings, device)
    here = [number for number, part in enumerate(each) if builder.rank is None or builder.rank in part]
    delta = settings.apply == "delta"
    own = {number: builder.optimizer() for number in (here if delta else here[:1])}
    known = {id(parameter) for parameter in weights}
    for number, optimizer in own.items() if len(own) > 1 else ():  # a single one keeps its names, the same on all ranks
        for parameter in optimizer.get_parameters():
            if id(parameter) not in known:
                parameter.name = f"part{number}.{parameter.name}"
    return AdasumUpdate(
        builder.network,
        list(own.values()),
        builder.config.train.batch_size,
        parts=each,
        delta=delta,
        rank=builder.rank,
        options=builder.options(each[here[0]]),
    )
