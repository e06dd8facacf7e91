"""A training stage: its budget, its update, its hooks."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from mindspore import Parameter
from numpy.typing import NDArray

from msaccel.checkpoint.state import State
from msaccel.step.loss_scaler import LossScaler
from msaccel.step.stage_budget import StageBudget
from msaccel.step.update import Signals, Windows


class SingleUpdate(Protocol):
    """One update; `msaccel.step.update.Update` documents its methods."""

    def compile(self, images: NDArray[np.float32], labels: NDArray[np.int32]) -> None: ...
    def __call__(self, ranks: Windows, rate: float) -> Signals: ...


class Updates(Protocol):
    """What the loop needs from the updates of a stage; `msaccel.step.update.Update` documents each member."""

    @property
    def loss_scaler(self) -> LossScaler: ...

    @property
    def extra_forwards(self) -> int: ...

    def at(self, done: int, of: int) -> SingleUpdate: ...
    def averaged(self) -> AbstractContextManager[None]: ...
    def report(self) -> dict[str, float]: ...
    def evaluation_weights(self) -> EvaluationWeights | None: ...
    def state_dict(self) -> dict[str, Parameter]: ...
    def load_state_dict(self, state: State) -> None: ...


class EvaluationWeights(Protocol):
    """Weights that are evaluated, and saved in `last` and `best`, instead of the trained ones."""

    def after_update(self) -> None:
        """Called after each update of the job."""

    def in_place(self) -> AbstractContextManager[bool]:
        """Inside the block the network has these weights, afterwards the trained ones; yields whether they differ."""

    def state_dict(self) -> State: ...
    def load_state_dict(self, state: State) -> None: ...


def nothing_to_begin() -> dict[str, float]:
    return {}


def nothing_after(updates: int) -> None:
    pass


@dataclass(frozen=True)
class Stage:
    """Updates of one kind.

    Attributes:
        budget: how many, of which samples.
        update: makes the updates.
        begin: called before the first update, with the clock running; returns metrics by name.
        after: called after each update with the number of the stage's updates so far, with the clock running.
        resume: called instead of `begin` if a job resumes inside the stage, with the stage's updates so far.
    """

    budget: StageBudget
    update: Updates
    begin: Callable[[], dict[str, float]] = nothing_to_begin
    after: Callable[[int], None] = nothing_after
    resume: Callable[[int], None] = nothing_after
