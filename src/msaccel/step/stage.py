"""A part of a job that updates in one way."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from mindspore import Parameter
from numpy.typing import NDArray

from msaccel.checkpoint.state import State
from msaccel.step.loss_scaler import LossScaler
from msaccel.step.update import Signals, Windows
from msaccel.training.plan import StageBudget


class Updates(Protocol):
    """What the loop asks of an update; `msaccel.step.update.Update` says what each means."""

    loss_scaler: LossScaler
    extra_forwards: int

    def compile(self, images: NDArray[np.float32], labels: NDArray[np.int32]) -> None: ...
    def __call__(self, ranks: Windows, rate: float) -> Signals: ...
    def report(self) -> dict[str, float]: ...
    def state(self) -> list[Parameter]: ...
    def restore(self, state: State) -> None: ...


def nothing_to_begin() -> dict[str, float]:
    return {}


def nothing_after(updates: int) -> None:
    pass


@dataclass(frozen=True)
class Stage:
    """Updates of one kind.

    Attributes:
        budget: how many, of which samples.
        update: one of them.
        begin: called before the first, with the clock running; returns metrics by name.
        after: called after each with the number of the stage's updates so far, with the clock running.
        again: called instead of `begin` when a job is resumed inside the stage, with the number of its updates before.
    """

    budget: StageBudget
    update: Updates
    begin: Callable[[], dict[str, float]] = nothing_to_begin
    after: Callable[[int], None] = nothing_after
    again: Callable[[int], None] = nothing_after
