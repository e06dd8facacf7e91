"""The samples that the ranks of this process train on, update by update; those of the next are prepared meanwhile."""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from itertools import islice

from msaccel.data.dataset import Batch, Dataset
from msaccel.data.sampler import Indices, Sampler
from msaccel.distributed.communicator import Communicator
from msaccel.step.update import Elsewhere, Window


@dataclass(frozen=True)
class Loader:
    """Takes samples for the ranks of this process.

    Attributes:
        samples: the training set.
        comm: the processes of the job.
    """

    samples: Dataset
    comm: Communicator

    def epoch(self, sampler: Sampler, epoch: int, skip: int = 0) -> Generator[list[Window | Elsewhere], None, None]:
        """Yields the windows of all ranks for each update of an epoch; for ranks of other processes only their sizes.

        Args:
            skip: how many updates to leave out at the epoch's beginning.
        """
        mine = (
            indices
            for ranks in islice(sampler.epoch(epoch), skip, None)
            for rank, micro_batches in enumerate(ranks)
            if self.here(rank)
            for indices in micro_batches
        )
        of_an_update = sampler.steps * (sampler.ranks if self.comm.world_size == 1 else 1)
        with closing(self.samples.batches(mine, epoch, max(2, of_an_update))) as batches:
            for ranks in islice(sampler.epoch(epoch), skip, None):
                yield [self.window(rank, micro_batches, batches) for rank, micro_batches in enumerate(ranks)]

    def here(self, rank: int) -> bool:
        """Whether a rank belongs to this process."""
        return self.comm.world_size == 1 or rank == self.comm.rank

    def window(self, rank: int, micro_batches: Sequence[Indices], batches: Iterator[Batch]) -> Window | Elsewhere:
        """The samples of a rank's micro-batches, or only their sizes if another process has the rank."""
        if not self.here(rank):
            return Elsewhere(tuple(map(len, micro_batches)))
        return [next(batches) for _ in micro_batches]
