"""Random images that a small network learns within seconds, for tests and for runs without a download.

Every class has a pattern of 7 x 7 random blocks; an image is the mean of its class's pattern and noise.
"""

import numpy as np

from msaccel.data.dataset import Labels
from msaccel.data.transforms import Images

_BLOCKS = 7
_AT_ONCE = 1024  # images
# A random stream of its own: the sample order is seeded with [seed, epoch], the validation split with key 0.
_SPAWN_KEY = 1


def generate(
    sizes: tuple[int, ...], shape: tuple[int, int, int], classes: int, seed: int
) -> list[tuple[Images, Labels]]:
    """Generates sets of images that share the patterns of their classes.

    Args:
        sizes: number of images of each set, such as training and test.
        shape: channels, height and width of an image.
        classes: number of labels, counted from 0, each as frequent as the others where the size allows.
        seed: the job's seed; the same seed gives the same bytes.

    Returns:
        For each set, images ``(n, channels, height, width)`` and labels ``(n,)``.
    """
    rng = np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(_SPAWN_KEY,)))
    channels, height, width = shape
    blocks = rng.integers(256, size=(classes, channels, _BLOCKS, _BLOCKS), dtype=np.uint8)
    row, column = np.arange(height) * _BLOCKS // height, np.arange(width) * _BLOCKS // width
    patterns = np.ascontiguousarray(blocks[:, :, row[:, None], column])
    sets = []
    for size in sizes:
        labels = rng.permutation(np.arange(size, dtype=np.int32) % classes)
        images = rng.integers(256, size=(size, *shape), dtype=np.uint8)
        images >>= 1
        for first in range(0, size, _AT_ONCE):  # all at once, the patterns would take as much memory again
            part = slice(first, first + _AT_ONCE)
            images[part] += patterns[labels[part]] >> 1
        sets.append((images, labels))
    return sets
