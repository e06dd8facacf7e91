"""Writes a downloaded file, or a new folder, in one step: it is whole and right, or not there."""

import hashlib
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from gzip import GzipFile
from pathlib import Path
from typing import IO

from msaccel.data.files import MAX_BYTES, explain_read_errors, open_bounded
from msaccel.errors import DataError
from msaccel.files import atomic_write

_CHUNK = 1 << 20


class DownloadError(Exception):
    """A file could not be had from one place; the message is the reason, in a few words."""


def md5_of(path: Path) -> str | None:
    """The md5 of a file in hexadecimal, or None if there is no file.

    Raises:
        DataError: it cannot be read, or is larger than any file of a data set.
    """
    digest = hashlib.md5(usedforsecurity=False)
    with explain_read_errors(path):
        try:
            file = open_bounded(path)
        except (FileNotFoundError, NotADirectoryError):
            return None
        with file:
            while chunk := file.read(_CHUNK):
                digest.update(chunk)
    return digest.hexdigest()


def install(stream: IO[bytes] | GzipFile, path: Path, md5: str) -> None:
    """Writes a stream to ``path`` in one step, if its digest is right.

    The caller holds the lock of the folder.

    Raises:
        DownloadError: the stream's digest or size is wrong.
        OSError: reading or writing failed.
    """
    digest = hashlib.md5(usedforsecurity=False)
    with atomic_write(path, durable=False) as file:
        while chunk := stream.read(_CHUNK):
            if file.tell() + len(chunk) > MAX_BYTES:
                raise DownloadError(f"{path.name} is larger than {MAX_BYTES} bytes")
            digest.update(chunk)
            file.write(chunk)
        if digest.hexdigest() != md5:
            raise DownloadError(f"{path.name} arrived damaged")


@contextmanager
def new_folder(output: Path) -> Iterator[Path]:
    """Gives a folder to write to, ``<output>.part``, which is renamed to ``output`` at the end if nothing was raised.

    Raises:
        DataError: ``output`` exists, or cannot be written.
    """
    if os.path.lexists(output):  # False where the system refuses to look
        raise DataError(f"{output} exists: give --output a folder that does not")
    part = output.with_name(f"{output.name}.part")
    try:
        shutil.rmtree(part, ignore_errors=True)
        part.mkdir(parents=True)
        yield part
        os.replace(part, output)
    except OSError as error:
        raise DataError(f"{output} cannot be written ({error.strerror or error}): give another --output") from error
    finally:
        shutil.rmtree(part, ignore_errors=True)
