"""Reading an archive that anybody may have packed: by name, never extracted, and in bounded memory.

Nothing is written where a member says, so links, absolute paths and ``..`` have nothing to act on; of members that are
no regular files not even the content is looked at. `tarfile` takes headers and lists of holes into memory whole, as
large as they claim to be: such archives are refused.
"""

from __future__ import annotations

import gzip
import tarfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import IO

from msaccel.data.download.install import Unavailable

MOST_BYTES = 1 << 28  # of an unpacked archive; the largest we fetch has 184 MB
_MOST_MEMBERS = 10_000
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


class Limited:
    """A stream that refuses to give more than `MOST_BYTES`."""

    def __init__(self, stream: IO[bytes] | gzip.GzipFile) -> None:
        self._stream, self._left = stream, MOST_BYTES

    def read(self, size: int = MOST_BYTES, /) -> bytes:
        found: bytes = self._stream.read(min(size, self._left + 1))
        self._left -= len(found)
        if self._left < 0:
            raise Unavailable(f"it unpacks to more than {MOST_BYTES} bytes")
        return found


@contextmanager
def reading(reason: str) -> Iterator[None]:
    """Turns all that an archive may raise into one reason, but for errors of the system's.

    Raises:
        Unavailable: it is damaged, or made to do harm.
    """
    try:
        yield
    # tarfile's own errors run over several lines, and of bytes that may be anything it lets others through.
    except (*_DAMAGED, ValueError, RecursionError, MemoryError, OverflowError) as error:
        raise Unavailable(reason) from error


def open_stream(stream: IO[bytes] | gzip.GzipFile) -> tarfile.TarFile:
    """An archive that is read once, from its beginning."""
    return tarfile.open(fileobj=Limited(stream), mode="r|", tarinfo=_Header)  # type: ignore[call-overload]


def open_file(file: IO[bytes]) -> tarfile.TarFile:
    """An archive whose members are read in any order."""
    return tarfile.open(fileobj=file, mode="r:", tarinfo=_Header)


def members(archive: tarfile.TarFile) -> Iterator[tarfile.TarInfo]:
    """The members in their order.

    Raises:
        Unavailable: there are more than anybody packs.
    """
    for number, info in enumerate(archive):
        if number == _MOST_MEMBERS:
            raise Unavailable(f"it has more than {_MOST_MEMBERS} members")
        yield info


def member(archive: tarfile.TarFile, name: str) -> IO[bytes]:
    """The content of a regular file, by its exact name.

    Raises:
        Unavailable: there is none of that name, or it is something else.
    """
    info = next((info for info in members(archive) if info.name == name), None)
    if info is None:
        raise Unavailable(f"the package has no {name}")
    stream = archive.extractfile(info) if info.isreg() else None
    if stream is None:
        raise Unavailable(f"{name} is no regular file")
    return stream
