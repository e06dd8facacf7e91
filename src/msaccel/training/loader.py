"""What the ranks of this process train on, update after update; the next one is made ready meanwhile."""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from itertools import islice

from msaccel.data import Batch, Indices, Order, Samples
from msaccel.distributed.communicator import Ranks
from msaccel.step.update import Elsewhere, Window


@dataclass(frozen=True)
class Feed:
    """Takes samples for the ranks of this process.

    Attributes:
        samples: the training set.
        together: the processes of the job.
    """

    samples: Samples
    together: Ranks

    def epoch(self, order: Order, epoch: int, skip: int = 0) -> Generator[list[Window | Elsewhere], None, None]:
        """Yields the windows of all ranks for each update of an epoch; of other processes' only the sizes.

        Args:
            skip: how many updates to leave out at the epoch's beginning.
        """
        mine = (
            indices
            for ranks in islice(order.epoch(epoch), skip, None)
            for rank, micro_batches in enumerate(ranks)
            if self.here(rank)
            for indices in micro_batches
        )
        of_an_update = order.steps * (order.ranks if self.together.count == 1 else 1)
        with closing(self.samples.batches(mine, epoch, max(2, of_an_update))) as batches:
            for ranks in islice(order.epoch(epoch), skip, None):
                yield [self.window(rank, micro_batches, batches) for rank, micro_batches in enumerate(ranks)]

    def here(self, rank: int) -> bool:
        """Whether a rank is one of this process."""
        return self.together.count == 1 or rank == self.together.rank

    def window(self, rank: int, micro_batches: Sequence[Indices], batches: Iterator[Batch]) -> Window | Elsewhere:
        """The samples of a rank's micro-batches if it is one of this process."""
        if not self.here(rank):
            return Elsewhere(tuple(map(len, micro_batches)))
        return [next(batches) for _ in micro_batches]
