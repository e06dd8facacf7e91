"""From the bytes of a picture's file to what the network sees: decode, crop, resize, normalise.

- training: a random part of the picture, resized to the network's size, mirrored half of the time;
- evaluation: the shorter side resized to 256/224 of the network's size, the square in the middle.

Resizing is bilinear with antialiasing, as Pillow and torchvision do it. Pillow decodes: MindSpore's own `vision.Decode`
took 3.7 ms where Pillow took 2.8 (photographs of 512 × 512). A picture's EXIF orientation is not applied.
"""

import io
import re
import warnings
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from msaccel.data.augment import random_crop
from msaccel.data.transforms import IMAGENET_TABLE

FORMATS = ("JPEG", "PNG", "BMP")
_PNG, _JPEG, _JPEG_SCAN, _JPEG_END = b"\x89PNG", b"\xff\xd8", b"\xff\xda", b"\xff\xd9"
_PIXELS = 89_478_485  # Pillow's own limit, beyond which it warns of a decompression bomb; here it is refused
warnings.filterwarnings("ignore", category=Image.DecompressionBombWarning)


class Broken(Exception):
    """A picture that cannot be decoded; the message says why, in words that follow its name."""


def decode(content: bytes) -> Image.Image:
    """A whole picture, decoded, in three channels.

    Raises:
        Broken: it is no picture, not whole, or so large or slow that decoding it is refused.
    """
    try:
        with Image.open(io.BytesIO(content), formats=FORMATS) as picture:
            width, height = picture.size
            if width * height > _PIXELS:
                raise Broken(f"has {width} × {height} pixels, more than {_PIXELS:,}")
            if any(tile[0] == "bmp_rle" for tile in picture.tile):
                # Pillow unpacks it in Python: 200 bytes that claim 50 million pixels take it many seconds.
                raise Broken("is a compressed BMP")
            return picture.convert("RGB")
    except (Broken, MemoryError):
        raise
    except Image.DecompressionBombError as error:  # Pillow's, from twice as many on
        raise Broken(f"has more than {2 * _PIXELS:,} pixels") from error
    except Exception as error:  # whatever a decoder makes of bytes that may be anything
        words = re.sub(r" <_io\.BytesIO[^>]*>", "", " ".join(str(error).split()))
        raise Broken(f"cannot be decoded ({words[:80] or type(error).__name__})") from error


def check(content: bytes) -> None:
    """Looks at a picture more closely than `decode`, which shows parts that were overwritten with zeros as grey.

    Raises:
        Broken: it is not whole.
    """
    decode(content)
    if content.startswith(_JPEG) and content.rfind(_JPEG_END) < content.rfind(_JPEG_SCAN):
        raise Broken("has no end")  # within a scan these two bytes cannot occur
    if content.startswith(_PNG):
        try:
            with Image.open(io.BytesIO(content), formats=("PNG",)) as again:
                again.verify()
        except Exception as error:
            raise Broken("has a wrong checksum") from error


def training_view(picture: Image.Image, size: int, draws: Sequence[float]) -> Image.Image:
    """A random part of a picture, ``size`` × ``size``.

    Args:
        draws: `msaccel.data.augment.DRAWS` numbers in [0, 1).
    """
    box = random_crop(picture.width, picture.height, draws[1:])
    part = picture.resize((size, size), Image.Resampling.BILINEAR, box=box)
    return part.transpose(Image.Transpose.FLIP_LEFT_RIGHT) if draws[0] < 0.5 else part


def evaluation_view(picture: Image.Image, size: int) -> Image.Image:
    """The middle of a picture, ``size`` × ``size``."""
    factor = round(size * 256 / 224) / min(picture.size)
    width, height = (max(size, round(side * factor)) for side in picture.size)
    left, top = (width - size) // 2, (height - size) // 2
    if max(width, height) > 20 * size:  # a strip: resizing the whole of it could take any amount of memory
        side = min(picture.size) * size / round(size * 256 / 224)
        x, y = (picture.width - side) / 2, (picture.height - side) / 2
        return picture.resize((size, size), Image.Resampling.BILINEAR, box=(x, y, x + side, y + side))
    return picture.resize((width, height), Image.Resampling.BILINEAR).crop((left, top, left + size, top + size))


def normalised(view: Image.Image) -> NDArray[np.float32]:
    """The network's input, shape ``(3, height, width)``."""
    pixels = np.asarray(view)
    found = np.empty((3, *pixels.shape[:2]), np.float32)
    for channel, table in enumerate(IMAGENET_TABLE):
        found[channel] = np.take(table, pixels[..., channel], mode="wrap")
    return found
