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

from msaccel.data.download.install import MAX_BYTES
from msaccel.errors import DataError
from msaccel.files import open_regular

_UNSIGNED_BYTE = 0x08


def read_idx(path: Path, item_shape: tuple[int, ...]) -> NDArray[np.uint8]:
    """Reads one idx file of unsigned bytes.

    The header is compared with the file's own size before anything is allocated, so a damaged header cannot
    ask for more memory than the file has bytes.

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
    try:
        with open_regular(path) as file:
            size = os.fstat(file.fileno()).st_size
            header = file.read(header_size)
            shape = _parse_header(path, header, ndim)
            if shape[1:] != item_shape:
                raise DataError(f"{path} holds items of shape {shape[1:]}, not {item_shape}: put the right file there")
            expected = header_size + math.prod(shape)
            if size != expected:
                raise DataError(f"{path} has {size} bytes where its header announces {expected}: fetch the file again")
            if size > MAX_BYTES:  # a file with holes takes no place on a disk, and all of it in memory
                raise DataError(f"{path} has {size} bytes, more than any file of a data set: put the right file there")
            return np.fromfile(file, np.uint8).reshape(shape)
    except OSError as error:
        raise DataError(f"{path} cannot be read ({error.strerror}): check the file and its rights") from error


def _parse_header(path: Path, header: bytes, ndim: int) -> tuple[int, ...]:
    if len(header) != 4 + 4 * ndim or header[:4] != bytes((0, 0, _UNSIGNED_BYTE, ndim)):
        raise DataError(
            f"{path} is no unzipped idx file of unsigned bytes in {ndim} dimensions: put the right file there"
        )
    return struct.unpack(f">{ndim}I", header[4:])
