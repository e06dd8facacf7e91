"""From the bytes of an image file to what the network sees: decode, crop, resize, normalise.

- training: a random part of the image, resized to the network's size, mirrored half of the time;
- evaluation: the shorter side resized to 256/224 of the network's size, then the square in the middle.

Resizing is bilinear with antialiasing, as Pillow and torchvision do it. Pillow decodes: MindSpore's own `vision.Decode`
took 3.7 ms where Pillow took 2.8 (photographs of 512 × 512). The EXIF orientation of an image is not applied.
"""

import io
import re
import warnings
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from msaccel.data.augment import random_crop
from msaccel.data.transforms import IMAGENET_TABLE, look_up

FORMATS = ("JPEG", "PNG", "BMP")
_PNG, _JPEG, _JPEG_SCAN, _JPEG_END = b"\x89PNG", b"\xff\xd8", b"\xff\xda", b"\xff\xd9"
_PIXELS = 89_478_485  # Pillow's own limit, beyond which it warns of a decompression bomb; here it is refused
warnings.filterwarnings("ignore", category=Image.DecompressionBombWarning)


class DecodeError(Exception):
    """An image that cannot be decoded; the message says why, in words that follow its name."""


def decode(content: bytes) -> Image.Image:
    """Decodes a whole image to three channels.

    Raises:
        DecodeError: it is no image, not whole, or so large or slow that decoding it is refused.
    """
    try:
        with Image.open(io.BytesIO(content), formats=FORMATS) as image:
            width, height = image.size
            if width * height > _PIXELS:
                raise DecodeError(f"has {width} × {height} pixels, more than {_PIXELS:,}")
            if any(tile[0] == "bmp_rle" for tile in image.tile):
                # Pillow unpacks it in Python: 200 bytes that claim 50 million pixels take it many seconds.
                raise DecodeError("is a compressed BMP")
            if image.mode.startswith("I"):  # 16 bits of grey, which Pillow cuts at 255; of colours it takes the upper 8
                return Image.fromarray((np.asarray(image) >> 8).astype(np.uint8)).convert("RGB")
            return image.convert("RGB")
    except (DecodeError, MemoryError):
        raise
    except Image.DecompressionBombError as error:  # Pillow's own, from twice as many pixels on
        raise DecodeError(f"has more than {2 * _PIXELS:,} pixels") from error
    except Exception as error:  # whatever a decoder makes of bytes that may be anything
        words = re.sub(r" <_io\.BytesIO[^>]*>", "", " ".join(str(error).split()))
        raise DecodeError(f"cannot be decoded ({words[:80] or type(error).__name__})") from error


def check(content: bytes) -> None:
    """Checks an image more strictly than `decode`, which shows parts that were overwritten with zeros as grey.

    Raises:
        DecodeError: it is not whole.
    """
    decode(content)
    if content.startswith(_JPEG) and content.find(_JPEG_END, _first_scan(content)) < 0:
        raise DecodeError("has no end")  # within a scan the two bytes of the end marker cannot occur
    if content.startswith(_PNG):
        try:
            with Image.open(io.BytesIO(content), formats=("PNG",)) as reopened:
                reopened.verify()
        except Exception as error:
            raise DecodeError("has a wrong checksum") from error


def _first_scan(content: bytes) -> int:
    """Where the first scan of a JPEG begins, behind all segments: a preview among them has an end of its own."""
    place = len(_JPEG)
    while content[place : place + 1] == b"\xff":
        if content.startswith(_JPEG_SCAN, place):
            return place
        if content.startswith(b"\xff\xff", place):  # a byte that fills up
            place += 1
        else:
            place += 2 + int.from_bytes(content[place + 2 : place + 4], "big")
    return max(0, content.rfind(_JPEG_SCAN))


def training_view(image: Image.Image, size: int, numbers: Sequence[float]) -> Image.Image:
    """A random part of an image, ``size`` × ``size``, mirrored half of the time.

    Args:
        numbers: `msaccel.data.augment.RANDOM_NUMBERS` random numbers in [0, 1).
    """
    box = random_crop(image.width, image.height, numbers[1:])
    part = image.resize((size, size), Image.Resampling.BILINEAR, box=box)
    return part.transpose(Image.Transpose.FLIP_LEFT_RIGHT) if numbers[0] < 0.5 else part


def evaluation_view(image: Image.Image, size: int) -> Image.Image:
    """The middle of an image, ``size`` × ``size``."""
    factor = round(size * 256 / 224) / min(image.size)
    width, height = (max(size, round(side * factor)) for side in image.size)
    left, top = (width - size) // 2, (height - size) // 2
    if max(width, height) > 20 * size:  # a strip: resizing the whole of it could take any amount of memory
        side = min(image.size) * size / round(size * 256 / 224)
        x, y = (image.width - side) / 2, (image.height - side) / 2
        return image.resize((size, size), Image.Resampling.BILINEAR, box=(x, y, x + side, y + side))
    return image.resize((width, height), Image.Resampling.BILINEAR).crop((left, top, left + size, top + size))


def normalise(view: Image.Image) -> NDArray[np.float32]:
    """The network's input, shape ``(3, height, width)``."""
    return look_up(IMAGENET_TABLE, np.asarray(view).transpose(2, 0, 1)[None])[0]
