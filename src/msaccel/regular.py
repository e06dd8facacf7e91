"""Opening what a path of the user's names, if it is a file: a pipe would wait for ever, and a device never ends."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path
from typing import BinaryIO


def open_regular(path: Path) -> BinaryIO:
    """Opens a regular file, or a link to one, for reading.

    Raises:
        OSError: there is none, it cannot be read, or something else is there.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except ValueError as error:
        raise OSError(errno.EINVAL, "no name of a file") from error
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(errno.EINVAL, "no regular file")
    return os.fdopen(descriptor, "rb")
