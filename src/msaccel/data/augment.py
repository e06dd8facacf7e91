"""Augmentation of training images: random crops and flips, different in each epoch.

Small images in memory are padded on each side, cropped back and mirrored half of the time (K. He et al., "Deep residual
learning for image recognition", 2015, section 4.2, with 4 black pixels); photographs are cropped to a random area and
aspect ratio (C. Szegedy et al., "Going deeper with convolutions", 2014, section 6), and mirrored as often.

Every random choice depends on seed, epoch and sample alone (`msaccel.data.counter_rng`).
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from msaccel.data.counter_rng import uniform
from msaccel.data.sampler import Indices
from msaccel.data.transforms import Images

Box = tuple[int, int, int, int]

_PAD_MODES: dict[str, Literal["constant", "reflect"]] = {"zeros": "constant", "reflect": "reflect"}  # NumPy's names
SCALE = (0.08, 1.0)  # share of the image's area
RATIO = (3 / 4, 4 / 3)  # width over height
_ATTEMPTS = 10
RANDOM_NUMBERS = 1 + 4 * _ATTEMPTS  # for a photograph: one for the flip, four for each attempt at a crop


@dataclass(frozen=True)
class CropAndFlip:
    """Pads, crops and mirrors each small image according to its own random numbers.

    Attributes:
        seed: the job's.
        padding: pixels added on each side.
        pad_mode: what they show: `zeros` (black), or `reflect` (the image's own, mirrored at its edge).
        flip: which images are mirrored: half of them in every epoch (`random`), or each in every other epoch
            (`alternating`; K. Jordan, arXiv 2404.00498, section 3.6), a half of them in the first one.
    """

    seed: int
    padding: int
    pad_mode: str
    flip: str

    def __call__(self, images: Images, epoch: int, samples: Indices) -> Images:
        """Augments images ``(n, channels, height, width)`` at these positions ``(n,)`` of the whole set."""
        numbers = uniform(self.seed, epoch, samples, 3)
        top, left = (numbers[:, :2] * (2 * self.padding + 1)).astype(np.intp).T
        around = (self.padding, self.padding)
        padded = np.pad(images, ((0, 0), (0, 0), around, around), _PAD_MODES[self.pad_mode])
        height, width = images.shape[2:]
        crops = np.lib.stride_tricks.sliding_window_view(padded, (height, width), (2, 3))  # type: ignore[call-overload]
        cropped: Images = crops[np.arange(len(images)), :, top, left]
        if self.flip == "alternating":
            mirrored = (uniform(self.seed, 0, samples, 3)[:, 2] < 0.5) ^ (epoch % 2 == 1)
        else:
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
