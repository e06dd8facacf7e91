"""The training and evaluation sets of an image folder, listed, looked through and limited."""

from __future__ import annotations

import hashlib
import os
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from msaccel.data.image_folder import faults, mindrecord, scan
from msaccel.data.image_folder import listing as folder
from msaccel.data.image_folder.listing import Listing
from msaccel.data.image_folder.prefetch import Files, ImageFiles
from msaccel.data.samples import Labels
from msaccel.errors import DataError
from msaccel.files import expand_user
from msaccel.schema import ImageFolderSettings


@dataclass(frozen=True)
class Loaded:
    """Both sets before a validation split, the data set's name, its number of classes and its digest."""

    name: str
    train: ImageFiles
    test: ImageFiles
    classes: int
    digest: str


def load(settings: ImageFolderSettings, seed: int, size: int) -> Loaded:
    """Finds the pictures of an image folder; none is decoded yet, unless they have to be looked through.

    Args:
        settings: the job's data settings.
        seed: of the augmentation.
        size: height and width for the network.

    Raises:
        DataError: there is no such data, it has faults and ``on_broken`` is ``stop``, or a limit does not fit.
    """
    root = expand_user(settings.root or "")
    sets: tuple[Listing, Listing] | tuple[mindrecord.Records, mindrecord.Records]
    if settings.format == "mindrecord":
        first, second = mindrecord.SPLITS
        sets = mindrecord.read(root / first), mindrecord.read(root / second)
        name = sets[0].data_name
        if sets[0].classes != sets[1].classes:
            raise DataError(f"{root} has other classes in {first} than in {second}: convert both from one folder")
    else:
        sets = usable(root, settings.on_broken, settings.cache, settings.workers)
        name = folder.data_name(root, settings.name)
    train, test = sets
    shown = (settings.limit_train, settings.limit_eval, size)
    digest = hashlib.sha256(f"{train.digest()} {test.digest()} {shown}".encode()).hexdigest()

    def limited(files: Files, labels: Labels, key: str, limit: int | None, seed: int | None) -> ImageFiles:
        if limit is not None and not 1 <= limit <= len(labels):
            raise DataError(f"data.{key}={limit} does not fit {len(labels)} samples: give 1 to {len(labels)} or null")
        numbers = np.arange(len(labels))[:limit]
        return ImageFiles(files, numbers, labels[:limit], size, seed, settings.workers)

    augmented = limited(train, train.labels, "limit_train", settings.limit_train, seed if settings.augment else None)
    evaluated = limited(test, test.labels, "limit_eval", settings.limit_eval, None)
    return Loaded(name, augmented, evaluated, len(train.classes), digest)


def usable(root: Path, on_broken: str, cache: str, workers: int, look: bool = False) -> tuple[Listing, Listing]:
    """The pictures of both splits that can be used; with ``skip``, or if asked to ``look``, all are decoded once.

    Raises:
        DataError: some cannot, and ``on_broken`` is ``stop``; or none is left.
    """
    if not os.path.isdir(root):
        raise DataError(f"data.root={root} is no folder: give one that holds train and val")
    listings = folder.list_splits(root)
    found = [fault for listing in listings for fault in listing.faults]
    if look or on_broken == "skip":
        looked = [scan.without_broken(listing, cache, workers) for listing in listings]
        found += [fault for _, undecodable in looked for fault in undecodable]
        listings = looked[0][0], looked[1][0]
    faults.settle(root, found, on_broken)
    for listing, split in zip(listings, ("train", "evaluation"), strict=True):
        if not len(listing):
            raise DataError(f"{root} has no {split} picture that can be decoded: put some there")
    return listings
