"""A counter-based random number generator: the numbers depend on seed, epoch and sample alone.

A generator with a state gives a sample other numbers when the number of ranks, the micro-batches or the order of work
change. Here each number is a hash of what it is for, so a sample looks the same however a global batch is split.

The hash is SplitMix64: G. L. Steele, D. Lea, C. H. Flood, "Fast splittable pseudorandom number generators", 2014.
"""

import numpy as np
from numpy.typing import NDArray

from msaccel.data.sampler import Indices

_GAMMA = np.uint64(0x9E3779B97F4A7C15)  # 2^64 over the golden ratio, odd


def uniform(seed: int, epoch: int, samples: Indices, count: int) -> NDArray[np.float64]:
    """Gives ``count`` random numbers, uniform in [0, 1), for each sample.

    Args:
        seed: the job's seed.
        epoch: counted from 0.
        samples: their positions in the whole set, in file order, shape ``(n,)``.
        count: numbers for each sample; asking for more does not change the first ones.

    Returns:
        Shape ``(n, count)``.
    """
    state = np.zeros(len(samples), np.uint64)
    for part in (np.uint64(seed), np.uint64(epoch), samples.astype(np.uint64)):
        state = _mixed(state + (np.full(len(samples), part) + np.uint64(1)) * _GAMMA)
    steps = np.arange(1, count + 1, dtype=np.uint64) * _GAMMA
    return (_mixed(state[:, None] + steps) >> np.uint64(11)) * 2.0**-53


def _mixed(bits: NDArray[np.uint64]) -> NDArray[np.uint64]:
    bits = (bits ^ (bits >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    bits = (bits ^ (bits >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return bits ^ (bits >> np.uint64(31))
