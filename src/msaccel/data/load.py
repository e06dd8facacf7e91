"""Loads the data that a job's settings name: training, validation and test set."""

import hashlib
from dataclasses import replace
from functools import partial

import numpy as np

from msaccel.data import cifar, idx
from msaccel.data.augment import crop_and_flip
from msaccel.data.dataset import Augment, Dataset, DatasetSplits, InMemoryDataset, Labels, check_limit
from msaccel.data.download.fetch import locate
from msaccel.data.download.sources import SOURCES
from msaccel.data.image_folder.load import load_image_folder
from msaccel.data.synthetic import generate
from msaccel.data.transforms import CIFAR10, TRANSFORMS, Images, Transform
from msaccel.errors import DataError
from msaccel.schema import Cifar10Settings, DataSettings, IdxDataSettings, ImageFolderSettings, SyntheticSettings

# A random stream of its own: the sample order is seeded with [seed, epoch], synthetic data with key 1.
_SPAWN_KEY = 0


def load_datasets(settings: DataSettings, seed: int, image_size: int = 224) -> DatasetSplits:
    """Loads a job's data, and downloads it if needed.

    Args:
        settings: the job's data settings, with transform and shape already chosen.
        seed: the job's seed, for augmentation, the validation split and synthetic data.
        image_size: height and width that photographs are cropped and resized to.

    Raises:
        DataError: the data cannot be had, is not what it should be, or is too small for a limit or a split.
    """
    if isinstance(settings, ImageFolderSettings):
        splits = load_image_folder(settings, seed, image_size)
    else:
        splits = _load_in_memory(settings, seed)
    train, validation = _split_validation(splits.train, settings.val_fraction, seed)
    return replace(splits, train=train, validation=validation)


def _load_in_memory(settings: DataSettings, seed: int) -> DatasetSplits:
    augment = None
    if isinstance(settings, SyntheticSettings) and settings.channels and settings.height and settings.width:
        shape = (settings.channels, settings.height, settings.width)
        classes = settings.classes
        sets = generate((settings.train_size, settings.test_size), shape, classes, seed)
        transform = TRANSFORMS["mlp28"]  # which does not resize: the images have the size asked for
    elif isinstance(settings, Cifar10Settings):
        folder = locate(settings.name, settings.root, settings.cache)
        sets = [cifar.read(folder, files) for files in (cifar.TRAIN, cifar.TEST)]
        classes, transform = len(cifar.CLASSES), CIFAR10
        if settings.augment:
            augment = partial(crop_and_flip, seed)
    else:
        assert isinstance(settings, IdxDataSettings)
        source = SOURCES[settings.name]
        classes = source.classes
        folder = locate(settings.name, settings.root, settings.cache)
        sets = [idx.read(folder, part, source.item_shape, classes) for part in ("train", "t10k")]
        transform = TRANSFORMS[settings.transform]
    train = _make_dataset(*sets[0], transform, "limit_train", settings.limit_train, augment)
    test = _make_dataset(*sets[1], transform, "limit_eval", settings.limit_eval)
    return DatasetSplits(settings.name, train, None, test, classes, _digest(train, test))


def _make_dataset(
    images: Images, labels: Labels, transform: Transform, key: str, limit: int | None, augment: Augment | None = None
) -> InMemoryDataset:
    check_limit(key, limit, len(labels))
    return InMemoryDataset(transform.resize(images[:limit]), labels[:limit], transform.table, augment)


def _split_validation(train: Dataset, fraction: float, seed: int) -> tuple[Dataset, Dataset | None]:
    """Splits a random share off the training set; both parts keep the file order."""
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
    return train.subset(np.flatnonzero(~chosen)), train.subset(np.flatnonzero(chosen))


def _digest(*datasets: InMemoryDataset) -> str:
    sha = hashlib.sha256()
    for dataset in datasets:
        sha.update(f"{dataset.images.shape}".encode())
        for array in (dataset.table, dataset.images, dataset.labels):
            sha.update(array.data.cast("B"))
    return sha.hexdigest()
