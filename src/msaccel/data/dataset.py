"""A job's data: training, validation and test samples, ready to be drawn in batches."""

import hashlib
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np

from msaccel.data import cifar
from msaccel.data.augment import crop_and_flip
from msaccel.data.download.fetch import locate
from msaccel.data.download.sources import SOURCES, Source
from msaccel.data.idx import read_idx
from msaccel.data.image_folder.load import load as load_images
from msaccel.data.in_memory import Augment, Split
from msaccel.data.samples import Labels, Samples
from msaccel.data.synthetic import generate
from msaccel.data.transforms import CIFAR10, TRANSFORMS, Images, Transform
from msaccel.errors import DataError
from msaccel.schema import Cifar10Settings, DataSettings, IdxDataSettings, ImageFolderSettings, SyntheticSettings

# Keeps the split apart from the sample order, seeded with [seed, epoch], and from synthetic data, key 1.
_SPAWN_KEY = 0


@dataclass(frozen=True, eq=False)
class Data:
    """Everything a job trains and evaluates on.

    Attributes:
        name: the data set's name.
        train: training set, without the validation samples.
        validation: samples split off the training set, or None.
        test: test set.
        classes: number of labels.
        digest: sha256 of all training (before the split) and test samples as the network sees them; for image folders
            of their list of files.
    """

    name: str
    train: Samples
    validation: Samples | None
    test: Samples
    classes: int
    digest: str


def load(settings: DataSettings, seed: int, image_size: int = 224) -> Data:
    """Loads a data set, and fetches it where needed.

    Args:
        settings: the job's data settings, with transform and shape already chosen.
        seed: the job's seed, for augmentation, the validation split and synthetic data.
        image_size: height and width that photographs are cropped and resized to.

    Raises:
        DataError: the data cannot be had, is not what it should be, or is too small for a limit or a split.
    """
    if isinstance(settings, ImageFolderSettings):
        found = load_images(settings, seed, image_size)
        train, validation = _split_off(found.train, settings.val_fraction, seed)
        return Data(found.name, train, validation, found.test, found.classes, found.digest)
    augment = None
    if isinstance(settings, SyntheticSettings) and settings.channels and settings.height and settings.width:
        shape = (settings.channels, settings.height, settings.width)
        classes = settings.classes
        sets = generate((settings.train_size, settings.test_size), shape, classes, seed)
        # Made in the size asked for: this transform leaves the geometry alone.
        transform = TRANSFORMS["mlp28"]
    elif isinstance(settings, Cifar10Settings):
        folder = locate(settings.name, settings.root, settings.cache)
        sets = [cifar.read(folder, files) for files in (cifar.TRAIN, cifar.TEST)]
        classes, transform = len(cifar.CLASSES), CIFAR10
        if settings.augment:
            augment = partial(crop_and_flip, seed)
    else:
        assert isinstance(settings, IdxDataSettings)
        source = SOURCES[settings.name]
        folder = locate(settings.name, settings.root, settings.cache)
        sets = [_read(folder, part, source) for part in ("train", "t10k")]
        classes, transform = source.classes, TRANSFORMS[settings.transform]
    (train_images, train_labels), (test_images, test_labels) = sets
    whole = _prepare(train_images, train_labels, transform, "data.limit_train", settings.limit_train, augment)
    test = _prepare(test_images, test_labels, transform, "data.limit_eval", settings.limit_eval)
    digest = _digest(whole, test)
    train, validation = _split_off(whole, settings.val_fraction, seed)
    return Data(settings.name, train, validation, test, classes, digest)


def _read(folder: Path, part: str, source: Source) -> tuple[Images, Labels]:
    images = read_idx(folder / f"{part}-images-idx3-ubyte", source.item_shape)
    labels = read_idx(folder / f"{part}-labels-idx1-ubyte", ())
    if len(images) != len(labels):
        raise DataError(
            f"{folder} holds {len(images)} {part} images but {len(labels)} labels: put files there that match"
        )
    if (labels >= source.classes).any():
        raise DataError(
            f"{folder} has the {part} label {labels.max()} where {source.classes - 1} is the largest:"
            " put the right files there"
        )
    return images[:, None], labels.astype(np.int32)


def _prepare(
    images: Images, labels: Labels, transform: Transform, key: str, limit: int | None, augment: Augment | None = None
) -> Split:
    if limit is not None and not 1 <= limit <= len(labels):
        raise DataError(f"{key}={limit} does not fit {len(labels)} samples: give 1 to {len(labels)} or null")
    return Split(transform.geometry(images[:limit]), labels[:limit], transform.table, augment)


def _split_off(train: Samples, fraction: float, seed: int) -> tuple[Samples, Samples | None]:
    """Splits a seeded share off the training set; both sides keep the file order."""
    if fraction == 0:
        return train, None
    size = len(train)
    count = round(size * fraction) if 0 < fraction < 1 else 0
    if not 0 < count < size:
        raise DataError(
            f"data.val_fraction={fraction} of {size} training samples leaves one side empty:"
            " give a share that takes at least one and leaves at least one, or 0"
        )
    rng = np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(_SPAWN_KEY,)))
    chosen = np.zeros(size, np.bool_)
    chosen[rng.permutation(size)[:count]] = True
    return train.part(np.flatnonzero(~chosen)), train.part(np.flatnonzero(chosen))


def _digest(*splits: Split) -> str:
    sha = hashlib.sha256()
    for split in splits:
        sha.update(f"{split.images.shape}".encode())
        for array in (split.table, split.images, split.labels):
            sha.update(array.data.cast("B"))
    return sha.hexdigest()
