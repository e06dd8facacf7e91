"""The order of samples: a function of seed and epoch alone.

The training set's permutation is cut into global batches of ``micro_batch * steps * ranks`` samples. In each,
rank r's micro-batch j is the slice that starts at ``(r * steps + j) * micro_batch``. So an update
sees the same samples, however its global batch is split over ranks and accumulation steps.

Nothing is padded, repeated or dropped: an epoch's last global batch may be short, and then some micro-batches
are short and some ranks have fewer of them or none.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

Indices: TypeAlias = NDArray[np.int64]
UpdateIndices: TypeAlias = list[list[Indices]]  # of each rank, of each of its micro-batches


def permutation(seed: int, epoch: int, n: int) -> Indices:
    """The order of ``n`` samples in one epoch (counted from 0), shape ``(n,)``."""
    return np.random.default_rng([seed, epoch]).permutation(n)


@dataclass(frozen=True)
class Sampler:
    """The order of samples for one way to split a global batch.

    Attributes:
        samples: size of the training set.
        seed: the job's seed.
        micro_batch: samples of one forward and backward pass on one rank.
        steps: micro-batches a rank accumulates for one update.
        ranks: number of ranks, real or virtual.
    """

    samples: int
    seed: int
    micro_batch: int
    steps: int = 1
    ranks: int = 1

    @property
    def global_batch(self) -> int:
        """Samples of one full update over all ranks."""
        return self.micro_batch * self.steps * self.ranks

    @property
    def updates_per_epoch(self) -> int:
        """Updates of one epoch, the last of which may be short."""
        return -(-self.samples // self.global_batch)

    def epoch(self, epoch: int) -> Iterator[UpdateIndices]:
        """Yields the updates of one epoch.

        An update has one list for each rank, with the sample indices of each of that rank's micro-batches. Empty
        micro-batches are left out, so a rank's list may be empty.
        """
        order = permutation(self.seed, epoch, self.samples)
        share = self.micro_batch * self.steps
        for first in range(0, self.samples, self.global_batch):
            batch = order[first : first + self.global_batch]
            yield [
                [
                    batch[start : start + self.micro_batch]
                    for start in range(rank * share, min((rank + 1) * share, len(batch)), self.micro_batch)
                ]
                for rank in range(self.ranks)
            ]
