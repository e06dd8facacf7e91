"""Rank, world size, and collectives for small host arrays.

Gradients, which are large and recur, are reduced inside the graphs (`msaccel.distributed.collectives`).
"""

from __future__ import annotations

import hashlib
import socket
from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray


class Communicator:
    """A job of a single process; `msaccel.distributed.cluster.Cluster` is one of several.

    Attributes:
        rank: of this process; 0 writes MLflow and checkpoints.
        world_size: processes of the job.
    """

    rank = 0
    world_size = 1

    @property
    def is_main(self) -> bool:
        """Whether this is rank 0, which writes for all."""
        return self.rank == 0

    def all_gather(self, values: NDArray[np.generic]) -> NDArray[np.generic]:
        """The arrays of all ranks, equally shaped, stacked in their order: (world_size, *shape)."""
        return values[None]

    def all_sum(self, values: NDArray[np.float64]) -> NDArray[np.float64]:
        """The sum over ranks, added in float64 in their order: the same bits on each."""
        total = np.zeros_like(values)
        for own in self.all_gather(values):
            total = total + own
        return total

    def all_reduce(self, values: NDArray[np.float32]) -> NDArray[np.float32]:
        """The sum over ranks of a long vector (n,), in float32: the same bits on each."""
        return values

    def broadcast(self, values: NDArray[np.float32]) -> NDArray[np.float32]:
        """What the first rank gave, on all; the others give an array of the same shape."""
        return values

    def barrier(self) -> None:
        """Returns when all ranks have reached it, however long that takes."""

    def connect(self, partner: int) -> socket.socket:
        """A connection to another rank of this server. All ranks must call it at once, each pair for each other."""
        raise NotImplementedError("a single process has no other rank")

    def differ(self, digests: Sequence[int]) -> list[int]:
        """The ranks whose digests (64 bits each) differ from those of the first rank."""
        every = self.all_gather(np.array(digests, np.int64))
        return [rank for rank, own in enumerate(every) if not np.array_equal(own, every[0])]


def digest(arrays: Iterable[NDArray[np.generic]]) -> int:
    """64 bits of the SHA-256 of all values."""
    found = hashlib.sha256()
    for array in arrays:
        found.update(np.asarray(array, order="C").reshape(-1).view(np.uint8).data)
    return int.from_bytes(found.digest()[:8], "little", signed=True)


SINGLE_PROCESS = Communicator()
