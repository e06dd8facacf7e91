"""Transforms of images, bit for bit as MindSpore's: a resize, and a table that does the rest.

Rescale and Normalize are functions of one byte. So an image stays uint8 after resizing, and a table of 256 float32
values does the rest when a batch is made: a quarter of the memory, and no arithmetic to repeat.

- ``lenet32``: Resize 28 to 32 (linear), Rescale(1/0.3081, -0.1307/0.3081), Rescale(1/255, 0). Tutorial
  "Applying gradient accumulation" for LeNet. It normalises before it divides by 255, so inputs lie in
  [-0.002, 3.24]; that is kept, because the tutorial's results depend on it.
- ``mlp28``: Rescale(1/255, 0), Normalize(0.1307, 0.3081). Tutorial "Gradient accumulation" with an MLP.
- ``small``: Resize 28 to 32, then as ``mlp28``, in three equal channels: small images for a residual network.
  CIFAR-10, which has this size and three channels, is only normalised, each channel with its own mean.
- ``imagenet``: for photographs. `msaccel.data.image_folder.decode` decodes, crops and resizes them; only the table is
  here.

How MindSpore rounds was found by comparing all 256 values; the tests compare them again.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

Images: TypeAlias = NDArray[np.uint8]
Table: TypeAlias = NDArray[np.float32]

Colours: TypeAlias = tuple[float, float, float]

# Mean and deviation of red, green and blue, from 0 to 1. CIFAR-10: over all pixels of its training set, as measured
# and published alike. ImageNet: the values that published weights were trained with.
CIFAR10_MEAN, CIFAR10_DEVIATION = (0.4914, 0.4822, 0.4465), (0.2470, 0.2435, 0.2616)
IMAGENET_MEAN, IMAGENET_DEVIATION = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)

# 256 images of 32 x 32 keep the int32 intermediates (1 MB each) in the processor's cache.
_CHUNK = 256


@dataclass(frozen=True)
class Transform:
    """What happens to an image before the network sees it.

    Attributes:
        resize: maps uint8 images ``(n, channels, height, width)`` to uint8 images of another size.
        table: the network's input for each of the 256 byte values, shape ``(256,)`` or ``(channels, 256)``.
    """

    resize: Callable[[Images], Images]
    table: Table


def resize_linear(images: Images, height: int, width: int) -> Images:
    """Resizes images as `cv2.resize(..., INTER_LINEAR)` does for bytes, pixel for pixel.

    OpenCV computes in fixed point with 11 bits: first along rows, then along columns, where it drops 4 bits, then 16,
    and then rounds away the last 2 (`HResizeLinear` and `VResizeLinear` in its `resize.cpp`).

    Args:
        images: shape ``(n, channels, h, w)``.
        height: new height, in pixels.
        width: new width, in pixels.

    Returns:
        Shape ``(n, channels, height, width)``.
    """
    resized = np.empty((*images.shape[:2], height, width), np.uint8)
    left, right, left_weight, right_weight = _taps(images.shape[3], width)
    top, bottom, top_weight, bottom_weight = _taps(images.shape[2], height)
    for start in range(0, len(images), _CHUNK):
        chunk = images[start : start + _CHUNK]
        rows = (chunk[..., left] * left_weight + chunk[..., right] * right_weight) >> 4
        upper = (rows[:, :, top] * top_weight[:, None]) >> 16
        lower = (rows[:, :, bottom] * bottom_weight[:, None]) >> 16
        resized[start : start + _CHUNK] = (upper + lower + 2) >> 2
    return resized


def shrink(images: Images, height: int, width: int) -> Images:
    """Makes images smaller: a new pixel is the mean over the area that it covers, rounded to a byte.

    In units of a new pixel's share an old one's overlap is a whole number, so all sums are whole numbers that float64
    holds exactly: no order of additions changes a byte.

    Args:
        images: shape ``(n, channels, h, w)``.
        height: new height, in pixels, at most ``h``.
        width: new width, in pixels, at most ``w``.

    Returns:
        Shape ``(n, channels, height, width)``.
    """
    *outer, old_height, old_width = images.shape
    columns = np.ascontiguousarray(_overlaps(old_width, width).T)  # a product with a view takes ten times as long
    narrow = (images.reshape(-1, old_width) @ columns).reshape(*outer, old_height, width)
    area = old_height * old_width
    return ((_overlaps(old_height, height) @ narrow + area / 2) / area).astype(np.uint8)


def _overlaps(old: int, new: int) -> NDArray[np.float64]:
    """How much of each old pixel each new one covers, in units of 1/new of an old pixel: shape ``(new, old)``."""
    news, olds = np.arange(new)[:, None], np.arange(old)
    ends = np.minimum((news + 1) * old, (olds + 1) * new)
    return np.maximum(ends - np.maximum(news * old, olds * new), 0).astype(np.float64)


def _taps(old: int, new: int) -> tuple[NDArray[np.intp], NDArray[np.intp], NDArray[np.int32], NDArray[np.int32]]:
    """For every new pixel, its two old neighbours and their weights in units of 1/2048."""
    position = ((np.arange(new) + 0.5) * (old / new) - 0.5).astype(np.float32)
    first = np.floor(position).astype(np.intp)
    fraction = position - first.astype(np.float32)
    weight = np.rint(fraction * 2048).astype(np.int32)
    return first.clip(0, old - 1), (first + 1).clip(0, old - 1), 2048 - weight, weight


def _lenet32_table() -> Table:
    scale, shift = np.float32(1 / 0.3081), np.float32(-1 * 0.1307 / 0.3081)
    # A fused multiply-add rounds once: float64 holds the product of a byte and a float32 exactly.
    shifted = (np.arange(256) * np.float64(scale) + np.float64(shift)).astype(np.float32)
    return shifted * np.float32(1 / 255)


def _normalising(mean: float, deviation: float) -> Table:
    rescaled = np.arange(256, dtype=np.float32) * np.float32(1 / 255)
    return (rescaled - np.float32(mean)) / np.float32(deviation)


def _normalising_each(means: Colours, deviations: Colours) -> Table:
    return np.stack([_normalising(mean, deviation) for mean, deviation in zip(means, deviations, strict=True)])


def look_up(table: Table, images: Images) -> NDArray[np.float32]:
    """The network's input for bytes, float32 of the same shape ``(n, channels, height, width)``.

    With ``mode="wrap"`` `numpy.take` checks no bounds, which takes half the time of ``table[...]``; a byte is never
    outside the table.
    """
    if table.ndim == 1:
        return np.take(table, images, mode="wrap")
    found = np.empty(images.shape, np.float32)
    for channel, values in enumerate(table):
        found[:, channel] = np.take(values, images[:, channel], mode="wrap")
    return found


TRANSFORMS: dict[str, Transform] = {
    "lenet32": Transform(lambda images: resize_linear(images, 32, 32), _lenet32_table()),
    "mlp28": Transform(lambda images: images, _normalising(0.1307, 0.3081)),
    "small": Transform(lambda images: resize_linear(images, 32, 32).repeat(3, axis=1), _normalising(0.1307, 0.3081)),
}
CIFAR10 = Transform(lambda images: images, _normalising_each(CIFAR10_MEAN, CIFAR10_DEVIATION))
IMAGENET_TABLE = _normalising_each(IMAGENET_MEAN, IMAGENET_DEVIATION)
