"""What the updates since the last log point measured, fetched from the device at once."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np

from msaccel.devices.ranks import ALONE, Ranks
from msaccel.update import Signals


@dataclass(frozen=True)
class Reading:
    """Sample-weighted means over the updates since the last log point, over all ranks.

    Attributes:
        loss: mean loss per sample; NaN if it was not finite for every sample.
        accuracy: share of samples classified correctly, 0 to 1.
        norm: global gradient norm of the last update; over parts, their mean.
        norm_max: the same, over parts the largest.
        clipped: share of (update, part) pairs whose gradient was clipped.
        loss_scale: the scale of the last update.
        refused: places, in the list of updates, of those that were not applied.
        in_a_row: for each of them, how many had been refused without one between.
    """

    loss: float
    accuracy: float
    norm: float
    norm_max: float
    clipped: float
    loss_scale: float
    refused: tuple[int, ...]
    in_a_row: tuple[int, ...]


@dataclass
class Meter:
    """Keeps the signals of updates, still on the device, until `read`."""

    _signals: list[Signals] = field(default_factory=list)

    def add(self, signals: Signals) -> None:
        self._signals.append(signals)

    def __len__(self) -> int:
        return len(self._signals)

    def read(self, together: Ranks = ALONE) -> Reading:
        """Fetches and forgets, with one exchange between ranks; at least one update must have been added."""
        loss = right = 0.0
        total = 0
        refused, in_a_row, clipped = [], [], []
        norm = norm_max = loss_scale = math.nan
        for place, signals in enumerate(self._signals):
            for samples, measured in zip(signals.samples, signals.measured, strict=True):
                values = measured.asnumpy()
                loss += samples * float(values[0])
                right += float(values[1])
                total += samples
            norm, norm_max, applied, share, loss_scale, count = map(float, signals.guard.asnumpy()[-6:])
            clipped.append(share)
            if not applied:
                refused.append(place)
                in_a_row.append(int(count))
        self._signals.clear()
        loss, right, total, share = together.sums(np.array([loss, right, total, sum(clipped) / len(clipped)])).tolist()
        share /= together.count
        return Reading(loss / total, right / total, norm, norm_max, share, loss_scale, tuple(refused), tuple(in_a_row))
