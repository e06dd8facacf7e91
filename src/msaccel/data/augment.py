"""Augmentation of training images: random crops and flips, different in each epoch.

Small images in memory are padded by 4 black pixels on each side, cropped back and mirrored half of the time
(K. He et al., "Deep residual learning for image recognition", 2015, section 4.2); photographs are cropped to a random
area and aspect ratio (C. Szegedy et al., "Going deeper with convolutions", 2014, section 6), and mirrored as often.

Every random choice depends on seed, epoch and sample alone (`msaccel.data.counter_rng`).
"""

import math
from collections.abc import Sequence

import numpy as np

from msaccel.data.counter_rng import uniform
from msaccel.data.sampler import Indices
from msaccel.data.transforms import Images

Box = tuple[int, int, int, int]

PADDING = 4
SCALE = (0.08, 1.0)  # share of the image's area
RATIO = (3 / 4, 4 / 3)  # width over height
_ATTEMPTS = 10
RANDOM_NUMBERS = 1 + 4 * _ATTEMPTS  # for a photograph: one for the flip, four for each attempt at a crop


def crop_and_flip(seed: int, images: Images, epoch: int, samples: Indices) -> Images:
    """Pads, crops and mirrors each image according to its own random numbers.

    Args:
        images: shape ``(n, channels, height, width)``.
        samples: their positions in the whole set, shape ``(n,)``.

    Returns:
        The same shape.
    """
    numbers = uniform(seed, epoch, samples, 3)
    top, left = (numbers[:, :2] * (2 * PADDING + 1)).astype(np.intp).T
    padded = np.pad(images, ((0, 0), (0, 0), (PADDING, PADDING), (PADDING, PADDING)))
    height, width = images.shape[2:]
    crops = np.lib.stride_tricks.sliding_window_view(padded, (height, width), (2, 3))  # type: ignore[call-overload]
    cropped: Images = crops[np.arange(len(images)), :, top, left]
    mirrored = numbers[:, 2] < 0.5
    cropped[mirrored] = cropped[mirrored][..., ::-1]
    return cropped


def random_crop(width: int, height: int, numbers: Sequence[float]) -> Box:
    """A random part of a photograph: left, top, right, bottom in pixels.

    The same distribution as torchvision's `RandomResizedCrop`: ten attempts, then the largest part in the middle that
    has an allowed aspect ratio.

    Args:
        numbers: 40 random numbers in [0, 1).
    """
    low, high = math.log(RATIO[0]), math.log(RATIO[1])
    for first in range(0, 4 * _ATTEMPTS, 4):
        share, shape, x, y = numbers[first : first + 4]
        area = width * height * (SCALE[0] + share * (SCALE[1] - SCALE[0]))
        ratio = math.exp(low + shape * (high - low))
        wide, tall = round(math.sqrt(area * ratio)), round(math.sqrt(area / ratio))
        if 0 < wide <= width and 0 < tall <= height:
            left, top = int(x * (width - wide + 1)), int(y * (height - tall + 1))
            return left, top, left + wide, top + tall
    ratio = min(max(width / height, RATIO[0]), RATIO[1])
    wide, tall = min(width, max(1, round(height * ratio))), min(height, max(1, round(width / ratio)))
    left, top = (width - wide) // 2, (height - tall) // 2
    return left, top, left + wide, top + tall
