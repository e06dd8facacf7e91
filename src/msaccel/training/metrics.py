"""What the updates since the last log point measured, fetched from the device at once."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from msaccel.distributed.communicator import SINGLE_PROCESS, Communicator
from msaccel.step.update import Signals


@dataclass(frozen=True)
class Metrics:
    """Sample-weighted means over the updates since the last log point, over all ranks.

    Attributes:
        loss: mean loss per sample; NaN if it was not finite for every sample.
        accuracy: share of labels predicted correctly, 0 to 1.
        norm: global gradient norm of the last update; over parts, their mean.
        norm_max: the same, over parts the largest.
        clipped: share of (update, part) pairs whose gradient was clipped.
        loss_scale: the scale of the last update.
        skips: those of these updates that were not applied.
    """

    loss: float
    accuracy: float
    norm: float
    norm_max: float
    clipped: float
    loss_scale: float
    skips: tuple[Skip, ...]


@dataclass(frozen=True)
class Skip:
    """An update that was not applied.

    Attributes:
        place: its position among the updates since the last reading.
        consecutive_skips: how many had been skipped in a row by then.
        bad: the micro-batches of this process whose loss was not finite, counted from 0.
    """

    place: int
    consecutive_skips: int
    bad: tuple[int, ...] = ()


@dataclass
class Sums:
    """Sums over updates: losses and hits in float64, in the order of updates; the other fields as in `Metrics`.

    Attributes:
        clipped: the sum of the updates' shares.
        updates: how many were added up.
    """

    loss: float = 0.0
    right: float = 0.0
    samples: float = 0.0
    clipped: float = 0.0
    updates: int = 0
    norm: float = math.nan
    norm_max: float = math.nan
    loss_scale: float = math.nan


@dataclass
class MetricAccumulator:
    """Keeps the signals of updates, still on the device, until they are fetched.

    Attributes:
        targets: the number of labels of a sample.
    """

    targets: int = 1
    _signals: list[Signals] = field(default_factory=list)
    _sums: Sums = field(default_factory=Sums)
    _skipped: list[Skip] = field(default_factory=list)
    _told: int = 0  # of these

    def add(self, signals: Signals) -> None:
        self._signals.append(signals)

    def __len__(self) -> int:
        """Updates since the last reading."""
        return self._sums.updates + len(self._signals)

    def fetch(self) -> None:
        """Waits for the device, and adds up what it has measured."""
        sums = self._sums
        for signals in self._signals:
            bad = []
            arrays = [measured.asnumpy() for measured in signals.measured]
            for number, (samples, values) in enumerate(zip(signals.samples, arrays, strict=True)):
                if not math.isfinite(values[0]):
                    bad.append(number)
                sums.loss += samples * float(values[0])
                sums.right += float(values[1])
                sums.samples += samples
            in_one = bool(arrays) and signals.outcome is signals.measured[0]  # fetching it again would take 10 µs
            outcome = signals.fetch(arrays[0] if in_one else None)
            sums.norm, sums.norm_max, sums.loss_scale = outcome.norm, outcome.norm_max, outcome.loss_scale
            sums.clipped += outcome.clipped
            if not outcome.applied:
                self._skipped.append(Skip(sums.updates, int(outcome.consecutive_skips), tuple(bad)))
            sums.updates += 1
        self._signals.clear()

    def skips(self) -> list[Skip]:
        """Fetches, and returns the updates that were not applied; each is returned only once."""
        self.fetch()
        news, self._told = self._skipped[self._told :], len(self._skipped)
        return news

    def read(self, comm: Communicator = SINGLE_PROCESS) -> Metrics:
        """Fetches the metrics and starts anew, with one exchange between ranks; needs at least one update."""
        self.fetch()
        sums, skipped = self._sums, self._skipped
        self._sums, self._skipped, self._told = Sums(), [], 0
        own = np.array([sums.loss, sums.right, sums.samples, sums.clipped / sums.updates])
        loss, right, total, share = comm.all_sum(own).tolist()
        share /= comm.world_size
        return Metrics(
            loss=loss / total,
            accuracy=right / (total * self.targets),
            norm=sums.norm,
            norm_max=sums.norm_max,
            clipped=share,
            loss_scale=sums.loss_scale,
            skips=tuple(skipped),
        )

    def state_dict(self) -> dict[str, NDArray[np.generic]]:
        """What has been fetched but not yet read: sums (8,), skipped updates (n, 2) as `refused`."""
        return {
            "sums": np.array(list(vars(self._sums).values()), np.float64),
            "refused": np.array([(each.place, each.consecutive_skips) for each in self._skipped], np.int64).reshape(
                -1, 2
            ),
        }

    def load_state_dict(self, state: dict[str, NDArray[np.generic]]) -> None:
        """Restores what `state_dict` returned."""
        *sums, norm, norm_max, loss_scale = state["sums"].tolist()
        loss, right, samples, clipped, updates = sums
        self._sums = Sums(loss, right, samples, clipped, int(updates), norm, norm_max, loss_scale)
        self._skipped = [Skip(place, count) for place, count in state["refused"].tolist()]
        self._told = len(self._skipped)  # the process that wrote the checkpoint has listed them
