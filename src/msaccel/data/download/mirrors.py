"""Fetches zipped files from a public folder over HTTP, or a zipped archive that holds them."""

import gzip
import zlib
from collections.abc import Mapping
from http.client import HTTPException
from pathlib import Path
from urllib.request import urlopen

from msaccel.data.download import archives
from msaccel.data.download.install import Unavailable, install

# For the connection to each address of the host, and for each silence while reading.
_TIMEOUT_S = 5.0


def fetch_from_mirror(mirror: str, files: Mapping[str, str], folder: Path) -> None:
    """Installs ``files`` (md5 by name) from ``<mirror><name>.gz``, and gives up at the first that fails.

    Raises:
        Unavailable: the mirror cannot be reached, lacks a file or sends a damaged one; files that came before
            it stay installed.
    """
    try:
        for name, md5 in files.items():
            with (
                urlopen(f"{mirror}{name}.gz", timeout=_TIMEOUT_S) as response,
                gzip.GzipFile(fileobj=response) as stream,
            ):
                install(stream, folder / name, md5)
    except (OSError, HTTPException, EOFError, zlib.error) as error:
        raise Unavailable(str(getattr(error, "reason", error))) from error


def fetch_from_archive(address: str, files: Mapping[str, str], folder: Path) -> None:
    """Installs ``files`` (md5 by name) from a zipped tar archive while it arrives, and nothing else of it.

    Raises:
        Unavailable: it cannot be reached, breaks off, lacks a file or holds a damaged one; files that came before it
            stay installed.
    """
    missing = dict(files)
    try:
        with (
            archives.reading("it is no whole zipped tar archive"),
            urlopen(address, timeout=_TIMEOUT_S) as response,
            gzip.GzipFile(fileobj=response) as unzipped,
            archives.open_stream(unzipped) as archive,
        ):
            for info in archives.members(archive):
                name = info.name.rsplit("/", 1)[-1]
                stream = archive.extractfile(info) if info.isreg() and name in missing else None
                if stream is not None:
                    install(stream, folder / name, missing.pop(name))
                if not missing:
                    return
    except (OSError, HTTPException) as error:
        raise Unavailable(str(getattr(error, "reason", error))) from error
    raise Unavailable(f"it has no {next(iter(missing))}")
