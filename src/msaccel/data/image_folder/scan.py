"""Decodes every image of a listing once, to find those that cannot be decoded before training.

The result is kept in the cache under a digest of all names, sizes and times of change, so an unchanged folder is
scanned once, unless a file could not be read: that may pass, and is not remembered. Several processes may ask at the
same time: one scans under a lock, the others wait and read its result.
"""

import hashlib
import json
import logging
import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np

from msaccel.data.image_folder import decode
from msaccel.data.image_folder.listing import FileProblem, ImageListing
from msaccel.errors import DataError
from msaccel.files import atomic_write_text, expand_user, locked

_log = logging.getLogger(__name__)
_VERSION = 1  # changes with what counts as broken
_AT_ONCE = 512  # images handed to the threads together
_SECONDS = 86_400.0  # that other processes wait for a scan: one of ImageNet takes an hour, and on a slow disk many


def find_broken(listing: ImageListing, cache: str, workers: int) -> dict[str, str]:
    """Names of the images that cannot be decoded, with the reasons.

    Args:
        cache: our own folder; ``~`` is expanded.
        workers: threads that decode.

    Raises:
        DataError: the cache cannot be written.
    """
    folder = expand_user(cache) / "scans"
    file = folder / f"{_digest(listing)}.json"
    if (known := _read(file)) is not None:
        return known
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with locked(file.with_suffix(".lock"), _SECONDS):
            known = _read(file)
            if known is None:
                _log.warning("decoding all %s images in %s once", f"{len(listing):,}", listing.root)
                known, all_read = _scan(listing, workers)
                if all_read:
                    atomic_write_text(file, json.dumps(known), durable=False)
            return known
    except OSError as error:
        raise DataError(f"data.cache={cache} cannot be written ({error.strerror}): give another folder") from error


def without_broken(listing: ImageListing, cache: str, workers: int) -> tuple[ImageListing, list[FileProblem]]:
    """The images that can be decoded, and a problem for each of the others."""
    found = find_broken(listing, cache, workers)
    decodable = np.array([number for number, name in enumerate(listing.names) if name not in found], np.int64)
    return listing.take(decodable), [FileProblem(name, reason) for name, reason in found.items()]


def _scan(listing: ImageListing, workers: int) -> tuple[dict[str, str], bool]:
    """Names of the broken images with the reasons, and whether all files could be read."""
    unread = 0

    def reason(number: int) -> str | None:
        nonlocal unread
        try:
            decode.check(listing.read(number))
        except decode.DecodeError as error:
            return str(error)
        except OSError as error:
            unread += 1
            return f"cannot be read ({error.strerror})"
        return None

    found = {}
    with ThreadPoolExecutor(workers, "scan") as pool:
        for first in range(0, len(listing), _AT_ONCE):
            numbers = range(first, min(first + _AT_ONCE, len(listing)))
            for number, why in zip(numbers, pool.map(reason, numbers), strict=True):
                if why is not None:
                    found[listing.names[number]] = why
    return found, not unread


def _read(file: Path) -> dict[str, str] | None:
    try:
        known = json.loads(file.read_text())
    except (OSError, ValueError):
        return None
    return known if isinstance(known, dict) else None


def _digest(listing: ImageListing) -> str:
    sha = hashlib.sha256(f"{_VERSION} {os.path.realpath(listing.root)}\0".encode(errors="surrogateescape"))
    sha.update("\0".join(listing.names).encode(errors="surrogateescape"))
    sha.update(np.ascontiguousarray(listing.sizes).data)
    return sha.hexdigest()
