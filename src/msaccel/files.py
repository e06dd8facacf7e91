"""Paths of the repository, atomic file writes, locks, and opening regular files only."""

from __future__ import annotations

import errno
import logging
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from filelock import FileLock, Timeout

from msaccel.errors import DISK_ERRORS, ConfigError, UserError

if TYPE_CHECKING:
    from matplotlib.figure import Figure

ROOT = Path(__file__).resolve().parents[2]  # every default path starts here, whatever the current folder
CONF = ROOT / "conf"
_log = logging.getLogger(__name__)
_SECONDS_IN_SILENCE = 3.0
SECONDS_TO_WAIT = 60.0  # for a lock that others hold for moments
SECONDS_FOR_DATA = 3600.0  # for a lock that is held while a data set is fetched


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
def atomic_write(path: Path, durable: bool = True) -> Iterator[BinaryIO]:
    """Opens `<path>.part`, which replaces `path` unless the block raises: readers see the old file or the new one.

    One process at a time may write a path. The temporary name is always the same, so processes that are killed leave
    at most one such file.

    Args:
        durable: the content is on the disk before the name is, so that the file survives a power failure. False saves
            milliseconds for a file that can be made again.

    Raises:
        OSError: it could not be written; what was at `path` stays.
    """
    temporary = path.with_name(f"{path.name}.part")
    try:
        with temporary.open("wb") as file:
            yield file
            if durable:
                file.flush()
                os.fsync(file.fileno())
        os.replace(temporary, path)
    except OSError as error:
        if error.errno in DISK_ERRORS and not error.filename:
            error.filename = str(path)  # the error of a full disk does not say what was written
        raise
    finally:
        temporary.unlink(missing_ok=True)


def atomic_write_text(path: Path, text: str, durable: bool = True) -> None:
    """Writes a text as UTF-8 with `atomic_write`."""
    with atomic_write(path, durable) as file:
        file.write(text.encode())


def atomic_write_figure(figure: Figure, path: Path, dpi: int, metadata: dict[str, str | None] | None = None) -> None:
    """Writes a figure as PNG with `atomic_write`."""
    with atomic_write(path, durable=False) as file:
        figure.savefig(file, format="png", dpi=dpi, metadata=metadata)


@contextmanager
def locked(path: Path, seconds: float = SECONDS_TO_WAIT) -> Iterator[None]:
    """Holds a lock file; waits if another process holds it, and says so after a few seconds.

    Raises:
        UserError: it is still held after so many seconds.
        OSError: the file cannot be made.
    """
    lock = FileLock(path)
    try:
        lock.acquire(timeout=min(_SECONDS_IN_SILENCE, seconds))
    except Timeout:
        _log.warning("waiting up to %g s for %s, which %s holds", seconds, path, _holder(path))
        try:
            lock.acquire(timeout=seconds)
        except Timeout as error:
            holder = _holder(path)
            raise UserError(f"{path} was held by {holder} for {seconds:g} s; end that, or wait for it.") from error
    try:
        yield
    finally:
        lock.release()


def _holder(path: Path) -> str:
    """The process that holds a lock file, as far as the system tells."""
    with suppress(OSError):
        inode = str(path.stat().st_ino)
        for fields in map(str.split, Path("/proc/locks").read_text().splitlines()):
            if fields[1] == "FLOCK" and fields[5].endswith(f":{inode}"):
                return f"process {fields[4]}"
    return "another process"


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
