"""Updates whose gradient was not finite: which samples they had, and when they end the job.

`nonfinite.json`, in the job's folder and artifacts, lists the samples of micro-batches whose loss was not finite. If
all losses were finite, the gradient overflowed later on, and the samples of the whole update are listed. The file lists
the first hundred updates: later ones are only counted.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from msaccel.data.dataset import Dataset
from msaccel.data.sampler import UpdateIndices
from msaccel.distributed.communicator import Communicator
from msaccel.errors import DivergedError
from msaccel.files import atomic_write_text
from msaccel.training.metrics import Metrics, Skip

_log = logging.getLogger(__name__)

FILE = "nonfinite.json"
MAX_UPDATES, MAX_SAMPLES = 100, 50_000


@dataclass
class NonFinite:
    """The list of one job, written by its first rank whenever it grows.

    Attributes:
        samples: the training set.
        comm: the processes of the job.
        folder: of the job.
        scaled: whether the loss is scaled; then skips are normal, since the scale is found by them, and only a fatal
            one is listed.
    """

    samples: Dataset
    comm: Communicator
    folder: Path
    scaled: bool
    _listed: list[dict[str, Any]] = field(default_factory=list)  # by the first rank alone
    _updates: int = 0
    _count: int = 0  # of samples

    @property
    def full(self) -> bool:
        """Whether the list is full, so no more updates are added; the same on all ranks."""
        return self._updates >= MAX_UPDATES or self._count >= MAX_SAMPLES

    def note(
        self, skips: Iterable[Skip], limit: int, first: int, epoch: int, samples_of: Callable[[int], UpdateIndices]
    ) -> bool:
        """Lists updates that should have been applied and were not; returns whether one of them ends the job.

        Called on all ranks.

        Args:
            skips: since the last log point.
            limit: consecutive skips that end the job.
            first: the first update since then; updates and epochs are counted from 1.
            samples_of: the samples of an update.
        """
        for skip in skips:
            last = skip.consecutive_skips >= limit
            if (last or not self.scaled) and not self.full:
                update = first + skip.place
                self._list(update, epoch, samples_of(update), skip.bad)
            if last:
                return True  # no later update was applied
        return False

    def stop(self, metrics: Metrics, limit: int, first: int, epoch: int) -> None:
        """Ends the job if the finite check has stopped applying updates; the arguments are those of `note`.

        Raises:
            TrainingError: which update it was, and what can be done.
        """
        for skip in metrics.skips:
            if skip.consecutive_skips < limit:
                continue
            where = f"update {first + skip.place} (epoch {epoch})"
            if not self.scaled:
                raise DivergedError(
                    f"the gradient of {where} is not finite, and nothing was applied since; look at its samples, "
                    f"listed in {FILE}, and start the job again with a lower optimizer.lr or train.on_nonfinite=skip."
                )
            raise DivergedError(
                f"the gradients of {limit} updates in a row, up to {where}, were not finite even with the loss scale "
                f"down to {metrics.loss_scale:g}; lower optimizer.lr or loss_scale.init."
            )

    def _list(self, update: int, epoch: int, by_rank: UpdateIndices, here: Sequence[int]) -> None:
        """Adds one update to the list.

        Args:
            by_rank: the samples of the update's micro-batches, for each rank.
            here: which micro-batches of this process had a loss that was not finite, as numbers in the order of ranks.
        """
        places = [(rank, place) for rank, window in enumerate(by_rank) for place in range(len(window))]
        bad = self._of_all(places, here)
        chosen = [place for place, is_bad in zip(places, bad, strict=True) if is_bad] or places
        self._updates += 1
        self._count += sum(len(by_rank[rank][place]) for rank, place in chosen)
        if self.comm.is_main:
            micro_batches = [
                {"rank": rank, "micro_batch": place, "samples": self.samples.names(by_rank[rank][place])}
                for rank, place in chosen
            ]
            self._listed.append({"update": update, "epoch": epoch, "loss_finite": not any(bad), "of": micro_batches})
            self._write()

    def _of_all(self, places: list[tuple[int, int]], here: Sequence[int]) -> list[bool]:
        """For each micro-batch of the update, whether its loss was not finite, wherever it was computed."""
        if self.comm.world_size == 1:
            return [number in here for number in range(len(places))]
        own = [number for number, (rank, _) in enumerate(places) if rank == self.comm.rank]
        flags = np.zeros(len(places), np.int64)
        flags[[own[number] for number in here]] = 1
        return list(self.comm.all_gather(flags).any(axis=0).tolist())

    def resume_after(self, updates: int) -> None:
        """Keeps the entries of the first `updates` updates of a resumed job: later ones are made again."""
        if self.comm.is_main:
            try:
                found = json.loads((self.folder / FILE).read_text())
                self._listed = [each for each in found if each["update"] <= updates]
                self._count = sum(len(part["samples"]) for each in self._listed for part in each["of"])
            except (OSError, ValueError, TypeError, KeyError):
                self._listed, self._count = [], 0
        counts = np.array([len(self._listed), self._count], np.int64)
        self._updates, self._count = self.comm.all_gather(counts)[0].tolist()

    def _write(self) -> None:
        path = self.folder / FILE
        try:
            atomic_write_text(path, json.dumps(self._listed))
        except OSError as error:
            _log.warning("%s could not be written (%s); training goes on.", path, error.strerror)
