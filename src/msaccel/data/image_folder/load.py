"""Loads the training and evaluation set of an image folder, or of the MindRecord files made from one."""

from __future__ import annotations

import hashlib
import logging
import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from msaccel.data.dataset import DatasetSplits, check_limit
from msaccel.data.image_folder import listing, mindrecord, scan
from msaccel.data.image_folder.listing import FileProblem, ImageListing
from msaccel.data.image_folder.mindrecord import MindRecordFile
from msaccel.data.image_folder.prefetch import ImageFileDataset, ImageSource
from msaccel.errors import DataError
from msaccel.files import expand_user

if TYPE_CHECKING:
    from msaccel.data.sets.imagenet import ImageFolderSettings

_log = logging.getLogger(__name__)


def load_image_folder(settings: ImageFolderSettings, seed: int, size: int) -> DatasetSplits:
    """Finds the images, without a validation split; with ``on_broken=skip`` all of them are decoded once.

    Args:
        settings: the job's data settings.
        seed: of the augmentation.
        size: height and width for the network.

    Raises:
        DataError: there is no such data, it has problems and ``on_broken`` is ``stop``, or a limit does not fit.
    """
    root = expand_user(settings.root or "")
    train: ImageListing | MindRecordFile
    test: ImageListing | MindRecordFile
    if settings.format == "mindrecord":
        train, test = (mindrecord.read(root / name) for name in mindrecord.SPLITS)
        if train.classes != test.classes:
            raise DataError(
                f"{root} has other classes in {mindrecord.SPLITS[0]} than in {mindrecord.SPLITS[1]}:"
                " convert both from one folder"
            )
        name = train.data_name
    else:
        train, test = list_usable(root, settings.on_broken, settings.cache, settings.workers)
        name = listing.read_data_name(root, settings.name)
    limits = (settings.limit_train, settings.limit_eval, size)
    digest = hashlib.sha256(f"{train.digest()} {test.digest()} {limits}".encode()).hexdigest()

    def dataset(source: ImageSource, key: str, limit: int | None, seed: int | None) -> ImageFileDataset:
        check_limit(key, limit, len(source.labels))
        labels = source.labels[:limit]
        return ImageFileDataset(source, np.arange(len(labels)), labels, size, seed, settings.workers)

    augmented = dataset(train, "limit_train", settings.limit_train, seed if settings.augment else None)
    evaluated = dataset(test, "limit_eval", settings.limit_eval, None)
    return DatasetSplits(name, augmented, None, evaluated, len(train.classes), digest)


def list_usable(
    root: Path, on_broken: str, cache: str, workers: int, decode_all: bool = False
) -> tuple[ImageListing, ImageListing]:
    """Lists the usable images of both splits.

    Args:
        on_broken: ``stop`` to raise if any file cannot be used; ``skip`` to decode all images once, and leave out those
            that cannot be used.
        cache: our own folder, where the results of decoding are kept.
        workers: threads that decode.
        decode_all: whether ``stop`` decodes all images too.

    Raises:
        DataError: something cannot be used, and ``on_broken`` is ``stop``; or nothing is left.
    """
    if not os.path.isdir(root):
        raise DataError(f"data.root={root} is no folder: give one that holds train and val")
    splits = listing.list_splits(root)
    problems = [problem for split in splits for problem in split.problems]
    if decode_all or on_broken == "skip":
        (train, in_train), (test, in_test) = (scan.without_broken(split, cache, workers) for split in splits)
        problems += in_train + in_test
        splits = train, test
    if problems:
        _report(root, problems, on_broken)
    for split, name in zip(splits, ("train", "evaluation"), strict=True):
        if not len(split):
            raise DataError(f"{root} has no {name} image that can be decoded: put some there")
    return splits


def _report(root: Path, problems: Sequence[FileProblem], on_broken: str) -> None:
    more = f", and {len(problems) - 1} more of this kind or another" if len(problems) > 1 else ""
    found = f"{len(problems)} in {root} cannot be used ({problems[0]}{more})"
    if on_broken == "stop":
        raise DataError(
            f"{found}: list all with python -m msaccel data check --root {root}, repair them, or leave them out with "
            "data.on_broken=skip (--on-broken skip for a conversion)"
        )
    _log.warning("%s and left out", found)
