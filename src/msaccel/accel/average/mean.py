"""The mean of the weights that training passes through, kept on the host in float64."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import numpy as np
from mindspore import Parameter
from numpy.typing import NDArray

from msaccel.accel import updates_within
from msaccel.accel.average import AverageSettings
from msaccel.checkpoint.state import State, array_like, set_values, values_restored

_COUNTS = "counts"


class MeanWeights:
    """The mean of snapshots, as `AverageSettings` says.

    Args:
        weights: the trained ones; all ranks have equal ones, so each keeps the same mean.
        updates: of the whole job. Snapshots are counted back from the last one, so the final weights are among them.
    """

    def __init__(self, settings: AverageSettings, weights: Sequence[Parameter], updates: int) -> None:
        self.settings, self.weights, self.updates = settings, list(weights), updates
        self.before = updates_within(settings.start, updates)
        self.done = self.snapshots = 0
        kept = settings.last if settings.form == "lawa" else 1
        # (kept, *shape): for lawa the latest snapshots, overwritten in turn; else the mean.
        self.kept = {weight.name: np.zeros((kept, *weight.shape)) for weight in weights}

    def after_update(self) -> None:
        self.done += 1
        if self.done > self.before and (self.updates - self.done) % self.settings.every == 0:
            self.snapshots += 1
            for weight in self.weights:
                self._take(self.kept[weight.name], weight.asnumpy())

    def _take(self, kept: NDArray[np.float64], snapshot: NDArray[np.float32]) -> None:
        share = {
            "ema": 1.0 if self.snapshots == 1 else 1 - self.settings.decay,
            "swa": 1 / self.snapshots,
            "lawa": 1.0,
        }[self.settings.form]
        mean = kept[(self.snapshots - 1) % len(kept)]
        mean += share * (snapshot - mean)

    @contextmanager
    def in_place(self) -> Iterator[bool]:
        if not self.snapshots:
            yield False
            return
        means = {name: kept[: self.snapshots].mean(axis=0).astype(np.float32) for name, kept in self.kept.items()}
        with values_restored(self.weights):
            set_values(self.weights, means)
            yield True

    def state_dict(self) -> State:
        return {**self.kept, _COUNTS: np.array([self.done, self.snapshots])}

    def load_state_dict(self, state: State) -> None:
        """Restores what `state_dict` returned.

        Raises:
            CheckpointError: it belongs to another network, or of other settings.
        """
        found = {name: array_like(state, name, like) for name, like in self.state_dict().items()}
        self.done, self.snapshots = map(int, found.pop(_COUNTS))
        self.kept = {name: np.array(kept) for name, kept in found.items()}
