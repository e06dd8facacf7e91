"""The ranks of a job as one of its processes sees them: who it is, and small values exchanged between all.

What is large and recurs, the gradients, is reduced inside the graphs (`msaccel.distributed.collectives`).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray


class Ranks:
    """One process that is all there is; `msaccel.distributed.cluster.Cluster` is one of many.

    Attributes:
        rank: of this process; 0 writes MLflow and checkpoints.
        count: processes of the job.
    """

    rank = 0
    count = 1

    @property
    def first(self) -> bool:
        """Whether this process speaks for all."""
        return self.rank == 0

    def gather(self, values: NDArray[np.generic]) -> NDArray[np.generic]:
        """The arrays of all ranks, equally shaped, stacked in their order: (count, *shape)."""
        return values[None]

    def sums(self, values: NDArray[np.float64]) -> NDArray[np.float64]:
        """The sum over ranks, added in float64 in their order: the same bits on each."""
        total = np.zeros_like(values)
        for own in self.gather(values):
            total = total + own
        return total

    def reduce(self, values: NDArray[np.float32]) -> NDArray[np.float32]:
        """The sum over ranks of a long vector (n,), in float32: the same bits on each."""
        return values

    def broadcast(self, values: NDArray[np.float32]) -> NDArray[np.float32]:
        """What the first rank gave, on all; the others give an array of the same shape."""
        return values

    def wait(self) -> None:
        """Returns when all ranks have come here, however long that takes."""

    def differ(self, digests: Sequence[int]) -> list[int]:
        """The ranks whose digests (64 bits each) are not those of the first."""
        every = self.gather(np.array(digests, np.int64))
        return [rank for rank, own in enumerate(every) if not np.array_equal(own, every[0])]


ALONE = Ranks()
