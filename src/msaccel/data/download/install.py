"""A file that is fetched, or a folder that is made, is either whole and right, or not there."""

import hashlib
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from gzip import GzipFile
from pathlib import Path
from typing import IO

from msaccel.errors import DataError
from msaccel.files import atomic_write, open_regular

_CHUNK = 1 << 20
# The largest file has 47,040,016 bytes: whatever unpacks to more is not what was asked for.
MAX_BYTES = 1 << 26


class Unavailable(Exception):
    """One place did not deliver; the message is the reason, in a few words."""


def md5_of(path: Path) -> str | None:
    """Digest of a file in hexadecimal, or None where there is no file.

    Raises:
        DataError: something is there that cannot be read, or larger than any file of a data set.
    """
    digest = hashlib.md5(usedforsecurity=False)
    try:
        with open_regular(path) as file:
            if (size := os.fstat(file.fileno()).st_size) > MAX_BYTES:
                raise DataError(f"{path} has {size} bytes, more than any file of a data set: put the right file there")
            while chunk := file.read(_CHUNK):
                digest.update(chunk)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise DataError(f"{path} cannot be read ({error.strerror}): check the file and its rights") from error
    return digest.hexdigest()


def install(stream: IO[bytes] | GzipFile, path: Path, md5: str) -> None:
    """Writes a stream to ``path`` in one step, if its digest is right.

    The caller holds the folder's lock.

    Raises:
        Unavailable: the stream's digest or size is wrong.
        OSError: reading or writing failed.
    """
    digest = hashlib.md5(usedforsecurity=False)
    with atomic_write(path, durable=False) as file:
        while chunk := stream.read(_CHUNK):
            if file.tell() + len(chunk) > MAX_BYTES:
                raise Unavailable(f"{path.name} is larger than {MAX_BYTES} bytes")
            digest.update(chunk)
            file.write(chunk)
        if digest.hexdigest() != md5:
            raise Unavailable(f"{path.name} arrived damaged")


@contextmanager
def new_folder(output: Path) -> Iterator[Path]:
    """Gives a folder to write into, ``<output>.part``, that becomes ``output`` at the end if nothing was raised.

    Raises:
        DataError: there is something already, or it cannot be written.
    """
    if output.exists():
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
