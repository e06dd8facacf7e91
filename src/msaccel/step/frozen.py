"""Updates that give a network's first layers no gradients; how many layers that is may change during the job.

The gradient is taken with respect to the weights of the other layers alone, so the backward pass ends at the first of
these; the optimizer steps these weights and their state and leaves all else as it is, bit for bit. The forward pass is
that of the whole network: the running statistics of batch norm move in frozen layers, too. Each number of frozen layers
has graphs of its own, compiled when it first occurs.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from mindspore import Parameter, Tensor
from numpy.typing import NDArray

from msaccel.checkpoint.state import State, array_like
from msaccel.step.loss_scaler import LossScaler
from msaccel.step.update import Signals, Update, Windows

if TYPE_CHECKING:
    from msaccel.step.stage import EvaluationWeights

# (updates that a job has made, updates that it will make in all) → the number of layers that the next update freezes.
LayerSchedule = Callable[[int, int], int]
_COUNTED = "frozen.layers"


@dataclass(frozen=True)
class _Depth:
    """The update that freezes a number of layers, built when it is compiled, while the training clock is paused."""

    updates: FreezingUpdates
    frozen: int

    def compile(self, images: NDArray[np.float32], labels: NDArray[np.int32]) -> None:
        self.updates.built(self.frozen).compile(images, labels)

    def __call__(self, ranks: Windows, rate: float) -> Signals:
        return self.updates.built(self.frozen)(ranks, rate)


class FreezingUpdates:
    """The updates of a job in which some of them freeze layers.

    Args:
        full: the update of all weights; every other update shares the state of its optimizer and loss scaler.
        schedule: how many layers an update freezes.
        without: builds an update that freezes the given number of layers and shares the state of `full`.
    """

    def __init__(self, full: Update, schedule: LayerSchedule, without: Callable[[int], Update]) -> None:
        self.full, self.schedule, self.without = full, schedule, without
        self.updates = {0: full}
        self._depths: dict[int, _Depth] = {}
        self._counted = np.zeros(2, np.int64)  # since the last report: sum of frozen layers, number of updates

    def at(self, done: int, of: int) -> _Depth:
        frozen = self.schedule(done, of)
        self._counted += (frozen, 1)
        return self._depths.setdefault(frozen, _Depth(self, frozen))

    def built(self, frozen: int) -> Update:
        if frozen not in self.updates:
            self.updates[frozen] = self.without(frozen)
        return self.updates[frozen]

    @property
    def loss_scaler(self) -> LossScaler:
        return self.full.loss_scaler

    @property
    def extra_forwards(self) -> int:
        return sum(update.extra_forwards for update in self.updates.values())

    def report(self) -> dict[str, float]:
        """Mean number of frozen layers since the last report."""
        layers, updates = self._counted.tolist()
        self._counted[:] = 0
        return {"frozen/layers": layers / updates, **self.full.report()} if updates else self.full.report()

    def evaluation_weights(self) -> EvaluationWeights | None:
        return self.full.evaluation_weights()

    def averaged(self) -> AbstractContextManager[None]:
        return self.full.averaged()

    def state_dict(self) -> dict[str, Parameter]:
        counted = Parameter(Tensor(self._counted.copy()), name=_COUNTED, requires_grad=False)
        return {**self.full.state_dict(), _COUNTED: counted}

    def load_state_dict(self, state: State) -> None:
        """Restores the values of `state_dict`; `CheckpointError` if they belong to another job."""
        self.full.load_state_dict(state)
        self._counted = np.array(array_like(state, _COUNTED, self._counted))
