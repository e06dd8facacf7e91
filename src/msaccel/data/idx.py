"""Reads the idx format of MNIST: a magic number, the dimensions, then the bytes.

The header is ``00 00 08 ndim`` (08: unsigned byte), then ``ndim`` big-endian 32-bit sizes.
Source: Y. LeCun, C. Cortes, C. Burges, "The MNIST database of handwritten digits", section "File formats".
"""

import math
import os
import struct
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from msaccel.data.dataset import DatasetSplits, Labels
from msaccel.data.download.fetch import locate
from msaccel.data.download.sources import Source
from msaccel.data.files import explain_read_errors, open_bounded
from msaccel.data.in_memory import in_memory
from msaccel.data.transforms import TRANSFORMS, Images
from msaccel.errors import DataError
from msaccel.schema import IdxDataSettings

_UNSIGNED_BYTE = 0x08
_IMAGE = (28, 28)


def load(settings: IdxDataSettings, source: Source) -> DatasetSplits:
    """Loads a data set of four idx files, in the transform chosen.

    Raises:
        DataError: the files cannot be had, are not what they should be, or are too few for a limit.
    """
    folder, classes = locate(source, settings.root, settings.cache), settings.class_count()
    train, test = (read(folder, part, classes) for part in ("train", "t10k"))
    return in_memory(settings, train, test, classes, TRANSFORMS[settings.transform])


def read(folder: Path, part: str, classes: int) -> tuple[Images, Labels]:
    """Images ``(n, 1, 28, 28)`` and labels ``(n,)`` of one part, ``train`` or ``t10k``.

    Raises:
        DataError: a file is not what it should be, or images and labels do not belong together.
    """
    images = read_idx(folder / f"{part}-images-idx3-ubyte", _IMAGE)
    labels = read_idx(folder / f"{part}-labels-idx1-ubyte", ())
    if len(images) != len(labels):
        raise DataError(
            f"{folder} holds {len(images)} {part} images but {len(labels)} labels: put files there that match"
        )
    if (labels >= classes).any():
        raise DataError(
            f"{folder} has the {part} label {labels.max()}, but the largest label is {classes - 1}:"
            " put the right files there"
        )
    return images[:, None], labels.astype(np.int32)


def read_idx(path: Path, item_shape: tuple[int, ...]) -> NDArray[np.uint8]:
    """Reads one idx file of unsigned bytes.

    The header is compared with the size of the file before memory is allocated, so a damaged header cannot ask for
    more memory than the file has bytes.

    Args:
        path: the unzipped file.
        item_shape: shape of one item, ``(28, 28)`` for images and ``()`` for labels.

    Returns:
        Array of shape ``(n, *item_shape)``.

    Raises:
        DataError: the file cannot be read, is no idx file of this shape, or is too short or too long.
    """
    ndim = 1 + len(item_shape)
    header_size = 4 + 4 * ndim
    with explain_read_errors(path), open_bounded(path) as file:
        size = os.fstat(file.fileno()).st_size
        shape = _parse_header(path, file.read(header_size), ndim)
        if shape[1:] != item_shape:
            raise DataError(f"{path} holds items of shape {shape[1:]}, not {item_shape}: put the right file there")
        expected = header_size + math.prod(shape)
        if size != expected:
            raise DataError(f"{path} has {size} bytes, but its header announces {expected}: fetch the file again")
        return np.fromfile(file, np.uint8).reshape(shape)


def _parse_header(path: Path, header: bytes, ndim: int) -> tuple[int, ...]:
    if len(header) != 4 + 4 * ndim or header[:4] != bytes((0, 0, _UNSIGNED_BYTE, ndim)):
        raise DataError(
            f"{path} is no unzipped idx file of unsigned bytes in {ndim} dimensions: put the right file there"
        )
    return struct.unpack(f">{ndim}I", header[4:])
