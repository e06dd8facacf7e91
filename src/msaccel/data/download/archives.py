"""Reads tar archives that are not trusted: by member name, never extracted, and in bounded memory.

Nothing is written where a member says, so links, absolute paths and ``..`` do no harm, and the content of members that
are no regular files is not read. `tarfile` reads headers and lists of holes into memory, as large as they claim to be:
archives with large headers, or with such lists, are refused.
"""

from __future__ import annotations

import gzip
import tarfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import IO

from msaccel.data.download.install import DownloadError

MAX_BYTES = 1 << 28  # of an unpacked archive; the largest of ours has 184 MB
_MAX_MEMBERS = 10_000
_MOST_OF_A_HEADER = 1 << 16
_DAMAGED = (tarfile.TarError, gzip.BadGzipFile, zlib.error, EOFError)
_LONG = (tarfile.XHDTYPE, tarfile.XGLTYPE, tarfile.SOLARIS_XHDTYPE, tarfile.GNUTYPE_LONGNAME, tarfile.GNUTYPE_LONGLINK)


class _Header(tarfile.TarInfo):
    """A member's header, refused before what it announces is read."""

    @classmethod
    def frombuf(cls, buf: bytes | bytearray, encoding: str, errors: str) -> _Header:
        header = super().frombuf(buf, encoding, errors)
        if header.type == tarfile.GNUTYPE_SPARSE or (header.type in _LONG and header.size > _MOST_OF_A_HEADER):
            raise tarfile.ReadError("no header of ours")
        return header


class LimitedStream:
    """A stream that ends with an error after `MAX_BYTES`."""

    def __init__(self, stream: IO[bytes] | gzip.GzipFile) -> None:
        self._stream, self._left = stream, MAX_BYTES

    def read(self, size: int = MAX_BYTES, /) -> bytes:
        found: bytes = self._stream.read(min(size, self._left + 1))
        self._left -= len(found)
        if self._left < 0:
            raise DownloadError(f"it unpacks to more than {MAX_BYTES} bytes")
        return found


@contextmanager
def explain_damage(reason: str) -> Iterator[None]:
    """Turns all errors that an archive can cause into one reason; errors of the system are left alone.

    Raises:
        DownloadError: the archive is damaged or malicious.
    """
    try:
        yield
    # tarfile's own messages have several lines, and with arbitrary bytes it raises other errors too.
    except (*_DAMAGED, ValueError, RecursionError, MemoryError, OverflowError) as error:
        raise DownloadError(reason) from error


def open_stream(stream: IO[bytes] | gzip.GzipFile) -> tarfile.TarFile:
    """Opens an archive that is read once, from its beginning."""
    return tarfile.open(fileobj=LimitedStream(stream), mode="r|", tarinfo=_Header)  # type: ignore[call-overload]


def open_file(file: IO[bytes]) -> tarfile.TarFile:
    """Opens an archive whose members are read in any order."""
    return tarfile.open(fileobj=file, mode="r:", tarinfo=_Header)


def members(archive: tarfile.TarFile) -> Iterator[tarfile.TarInfo]:
    """The members in their order.

    Raises:
        DownloadError: there are too many.
    """
    for number, info in enumerate(archive):
        if number == _MAX_MEMBERS:
            raise DownloadError(f"it has more than {_MAX_MEMBERS} members")
        yield info


def member(archive: tarfile.TarFile, name: str) -> IO[bytes]:
    """The content of a regular file, by its exact name.

    Raises:
        DownloadError: there is none of that name, or it is something else.
    """
    info = next((info for info in members(archive) if info.name == name), None)
    if info is None:
        raise DownloadError(f"the package has no {name}")
    stream = archive.extractfile(info) if info.isreg() else None
    if stream is None:
        raise DownloadError(f"{name} is no regular file")
    return stream
