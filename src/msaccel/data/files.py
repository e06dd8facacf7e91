"""Opening the files of a data set: regular files of a bounded size, with one sentence for what can go wrong."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from msaccel.errors import DataError
from msaccel.files import open_regular

MAX_BYTES = 1 << 26  # of an unzipped file; the largest of ours has 47,040,016


@contextmanager
def explain_read_errors(path: Path, kind: str = "file") -> Iterator[None]:
    """Turns an error of the system into a sentence about ``path``.

    Raises:
        DataError: the file or folder could not be read.
    """
    try:
        yield
    except OSError as error:
        raise DataError(f"{path} cannot be read ({error.strerror}): check the {kind} and its rights") from error


def open_bounded(path: Path, instead: str = "put the right file there") -> BinaryIO:
    """Opens a regular file for reading, unless it is larger than a file of a data set may be.

    The size is checked because a file with holes takes no space on the disk, but all of its size in memory.

    Args:
        instead: what to do about a file that is too large.

    Raises:
        DataError: it is too large.
        OSError: there is none, it cannot be read, or it is no regular file.
    """
    file = open_regular(path)
    size = os.fstat(file.fileno()).st_size
    if size > MAX_BYTES:
        file.close()
        raise DataError(f"{path} has {size:,} bytes, and {MAX_BYTES:,} at most are read: {instead}")
    return file
