"""The update with local SGD: at first with the mean gradient, then a step for each rank, with averages in between."""

from __future__ import annotations

from contextlib import AbstractContextManager
from dataclasses import replace

import numpy as np
from mindspore import Parameter, Tensor, nn
from numpy.typing import NDArray

from msaccel.accel.localsgd.ranks import RankStates
from msaccel.checkpoint.state import State, array_like, by_name
from msaccel.distributed.collectives import GatherNorms
from msaccel.kernels.finite_check import SIZE
from msaccel.kernels.flat import Tensors
from msaccel.kernels.graph import as_tensor
from msaccel.step.part_graphs import AgreeOnFinite, SetClipped, StepIfFinite, WindowGradient
from msaccel.step.update import Signals, Update, UpdateOptions, Windows, windows_here

_DONE = "localsgd.updates"


class LocalUpdate(Update):
    """One update of all ranks: a step with their mean gradient, or a step of each with its own.

    Args:
        network, optimizer, batch_size, options: as for `Update`; `reduce` sums over all ranks.
        ranks: of the job, two or more.
        every: updates between two averages.
        first_local: how many updates use the mean gradient before ranks step on their own.
        average_state: whether the optimizer's moments are averaged too.
    """

    def __init__(
        self,
        network: nn.Cell,
        optimizer: nn.Optimizer,
        batch_size: int,
        *,
        ranks: int,
        every: int,
        first_local: int,
        average_state: bool,
        options: UpdateOptions,
    ) -> None:
        super().__init__(network, optimizer, batch_size, single=False, options=options)
        self.every, self.first_local, self.done = every, first_local, 0
        self.states = RankStates(optimizer, ranks, average_state, options.reduce)
        self.window_gradient = WindowGradient(self.accumulator, self.loss_scaler, None)
        gather = GatherNorms(ranks) if options.reduce else None
        self.agree, self.set_clipped = AgreeOnFinite(self.loss_scaler, gather), SetClipped()
        self.step = StepIfFinite(optimizer, options.transform).set_train()

    def state_dict(self) -> dict[str, Parameter]:
        own = {_DONE: np.array([self.done]), **self.states.state_dict()}
        parameters = [Parameter(Tensor(value), name=name, requires_grad=False) for name, value in own.items()]
        return {**super().state_dict(), **by_name(parameters)}

    def load_state_dict(self, state: State) -> None:
        self.done = int(array_like(state, _DONE, np.array([self.done]))[0])
        if self.done > self.first_local:
            self.states.separate()
            self.states.load_state_dict(state)
        super().load_state_dict(state)

    def averaged(self) -> AbstractContextManager[None]:
        return self.states.averaged()

    def compile(self, images: NDArray[np.float32], labels: NDArray[np.int32]) -> None:
        number, here = self.one, 1 if self.states.real else self.states.ranks
        self.compile_sums(Tensor(images), Tensor(labels))
        if self.first_local:
            self.finish_window.compile(number, number)
        self.window_gradient.compile(number)
        self.agree.compile(*[number] * here)
        self.set_clipped.compile(Tensor(np.zeros(SIZE, np.float32)), *[number] * here)
        zeros = [Tensor(np.zeros(weight.shape, np.float32)) for weight in self.optimizer.parameters]
        self.step.compile(Tensor(True), number, number, *zeros)
        self.states.compile()

    def __call__(self, ranks: Windows, rate: float) -> Signals:
        self.done += 1
        if self.done <= self.first_local:
            return super().__call__(ranks, rate)
        if not self.states.separated:
            self.states.separate()
        signals = self.local_steps(ranks, rate)
        if (self.done - self.first_local) % self.every != 0:
            return signals
        self.states.average()
        return replace(signals, exchanged=len(self.states.averaged_groups) * self.exchanged(len(ranks)))

    def local_steps(self, ranks: Windows, rate: float) -> Signals:
        """A step of each rank here with the gradient of its own samples; a rank without samples takes none."""
        here = windows_here(ranks)
        samples: tuple[int, ...] = ()
        measured: tuple[Tensor, ...] = ()
        gradients: dict[int, Tensors] = {}
        norms = dict.fromkeys(here, as_tensor(0.0))
        clipped = dict.fromkeys(here, as_tensor(0.0))
        for rank, window in here.items():
            if window:
                self.states.place(rank)
                counts, micro_batches = self.add_up({rank: window})
                *tensors, norms[rank] = self.window_gradient(as_tensor(self.factor([window])))
                gradients[rank] = tuple(tensors)
                samples, measured = samples + counts, measured + micro_batches
        finite, agreed = self.agree(*norms.values())
        for rank, gradient in gradients.items():
            with self.states.of(rank):
                clipped[rank] = self.step(finite, norms[rank], as_tensor(rate), *gradient)
        return Signals(samples, measured, self.set_clipped(agreed, *clipped.values()), 0)
