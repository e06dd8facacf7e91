"""Loads the data that a job's settings name: training, validation and test set."""

from dataclasses import replace

import numpy as np

from msaccel.data.dataset import Dataset, DatasetSplits
from msaccel.data.sets import data_sets
from msaccel.errors import DataError
from msaccel.schema import DataSettings

# A random stream of its own: the sample order is seeded with [seed, epoch], synthetic data with key 1.
_SPAWN_KEY = 0


def load_datasets(settings: DataSettings, seed: int, shape: tuple[int, ...]) -> DatasetSplits:
    """Loads a job's data, and downloads it if needed.

    Args:
        settings: the job's data settings, with the transform already chosen.
        seed: the job's seed, for augmentation, the validation split and synthetic data.
        shape: of a sample as the network reads it.

    Raises:
        DataError: the data cannot be had, is not what it should be, or is too small for a limit or a split.
    """
    splits: DatasetSplits = data_sets()[settings.name].load(settings, seed, shape)
    train, validation = _split_validation(splits.train, settings.val_fraction, seed)
    return replace(splits, train=train, validation=validation)


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
