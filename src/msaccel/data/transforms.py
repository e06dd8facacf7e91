"""Image pipelines, bit for bit as MindSpore's, split in geometry and a table.

Rescale and Normalize are functions of one byte. So an image stays uint8 after the geometry, and a table of
256 float32 values does the rest when a batch is drawn: a quarter of the memory, and no arithmetic to repeat.

- ``lenet32``: Resize 28 to 32 (linear), Rescale(1/0.3081, -0.1307/0.3081), Rescale(1/255, 0). Tutorial
  "Applying gradient accumulation" for LeNet. Its normalisation comes before the division by 255, so inputs
  lie in [-0.002, 3.24]; it is kept, because its results belong to it.
- ``mlp28``: Rescale(1/255, 0), Normalize(0.1307, 0.3081). Tutorial "Gradient accumulation" with an MLP.
- ``small``: Resize 28 to 32, then as ``mlp28``, in three equal channels: small pictures for a residual network.

Which roundings MindSpore makes was found by comparing all 256 values; the tests compare them again.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

Images: TypeAlias = NDArray[np.uint8]
Table: TypeAlias = NDArray[np.float32]

# 256 images of 32 x 32 keep the int32 intermediates (1 MB each) in the processor's cache.
_CHUNK = 256


@dataclass(frozen=True)
class Transform:
    """What happens to an image before the network sees it.

    Attributes:
        geometry: maps uint8 images ``(n, channels, height, width)`` to uint8 images of another size.
        table: the network's input for each of the 256 byte values.
    """

    geometry: Callable[[Images], Images]
    table: Table


def resize_linear(images: Images, height: int, width: int) -> Images:
    """Resizes images as `cv2.resize(..., INTER_LINEAR)` does for bytes, pixel for pixel.

    OpenCV weighs pixels in fixed point with 11 bits, first along rows, then along columns where it drops 4,
    then 16, then rounds away the last 2 bits (`HResizeLinear` and `VResizeLinear` in its `resize.cpp`).

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


def _mlp28_table() -> Table:
    rescaled = np.arange(256, dtype=np.float32) * np.float32(1 / 255)
    return (rescaled - np.float32(0.1307)) / np.float32(0.3081)


TRANSFORMS: dict[str, Transform] = {
    "lenet32": Transform(lambda images: resize_linear(images, 32, 32), _lenet32_table()),
    "mlp28": Transform(lambda images: images, _mlp28_table()),
    "small": Transform(lambda images: resize_linear(images, 32, 32).repeat(3, axis=1), _mlp28_table()),
}
