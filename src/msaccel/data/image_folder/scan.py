"""Decodes every picture of a listing once, to know before training which cannot be.

The result is kept in the cache under a digest of all names, sizes and times of change, so a folder that stays as it is
is scanned once. Several processes may ask at once: one scans under a lock, the others wait and read what it found.
"""

import hashlib
import json
import logging
import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
from filelock import FileLock

from msaccel.data.image_folder import decode
from msaccel.data.image_folder.faults import Fault
from msaccel.data.image_folder.listing import Listing
from msaccel.errors import DataError
from msaccel.files import atomic_write_text, expand_user

_log = logging.getLogger(__name__)
_VERSION = 1  # of what counts as broken
_AT_ONCE = 512  # pictures handed to the threads together


def broken(listing: Listing, cache: str, workers: int) -> dict[str, str]:
    """Names and reasons of the pictures that cannot be decoded.

    Args:
        cache: our own folder; ``~`` is expanded.
        workers: threads that decode.

    Raises:
        DataError: the cache cannot be written.
    """
    folder = expand_user(cache) / "scans"
    file = folder / f"{_digest(listing)}.json"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with FileLock(file.with_suffix(".lock")):
            known = _read(file)
            if known is None:
                _log.warning("looking at all %s pictures in %s, once", f"{len(listing):,}", listing.root)
                known = _scan(listing, workers)
                atomic_write_text(file, json.dumps(known), durable=False)
            return known
    except OSError as error:
        raise DataError(f"data.cache={cache} cannot be written ({error.strerror}): give another folder") from error


def without_broken(listing: Listing, cache: str, workers: int) -> tuple[Listing, list[Fault]]:
    """The pictures that can be decoded, and a fault for each of the others."""
    found = broken(listing, cache, workers)
    good = np.array([number for number, name in enumerate(listing.names) if name not in found], np.int64)
    return listing.take(good), [Fault(name, reason) for name, reason in found.items()]


def _scan(listing: Listing, workers: int) -> dict[str, str]:
    def reason(number: int) -> str | None:
        try:
            decode.check(listing.read(number))
        except decode.Broken as error:
            return str(error)
        except OSError as error:
            return f"cannot be read ({error.strerror})"
        return None

    found = {}
    with ThreadPoolExecutor(workers, "scan") as pool:
        for first in range(0, len(listing), _AT_ONCE):
            numbers = range(first, min(first + _AT_ONCE, len(listing)))
            for number, why in zip(numbers, pool.map(reason, numbers), strict=True):
                if why is not None:
                    found[listing.names[number]] = why
    return found


def _read(file: Path) -> dict[str, str] | None:
    try:
        known = json.loads(file.read_text())
    except (FileNotFoundError, ValueError):
        return None
    return known if isinstance(known, dict) else None


def _digest(listing: Listing) -> str:
    sha = hashlib.sha256(f"{_VERSION} {os.path.realpath(listing.root)}\0".encode(errors="surrogateescape"))
    sha.update("\0".join(listing.names).encode(errors="surrogateescape"))
    sha.update(np.ascontiguousarray(listing.sizes).data)
    return sha.hexdigest()
