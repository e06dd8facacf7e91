"""Paths of the repository, atomic writes, and opening only regular files."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from msaccel.errors import ConfigError, naming

ROOT = Path(__file__).resolve().parents[2]  # every default path starts here, whatever the current folder
CONF = ROOT / "conf"


def expand_user(path: str | Path) -> Path:
    """A path of the user's, with ``~`` replaced by the home folder.

    Raises:
        ConfigError: there is no such user here.
    """
    try:
        return Path(path).expanduser()
    except RuntimeError as error:
        raise ConfigError(f"{path} begins with the home of a user who is not here; write another path.") from error


@contextmanager
def atomic_write(path: Path) -> Iterator[BinaryIO]:
    """Opens a temporary file beside `path` that replaces it once its content is on the disk.

    Raises:
        OSError: it could not be written; what was at `path` stays.
    """
    temporary = path.with_name(f"{path.name}.part")
    try:
        with naming(path), temporary.open("wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)


def open_regular(path: Path) -> BinaryIO:
    """Opens a regular file, or a link to one, for reading: a pipe would block for ever, and a device never ends.

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
