"""Makes the training and test set of images that are held in memory."""

import hashlib

from msaccel.data.dataset import Augment, DatasetSplits, InMemoryDataset, Labels, check_limit
from msaccel.data.transforms import Images, Transform
from msaccel.schema import DataSettings


def in_memory(
    settings: DataSettings,
    train: tuple[Images, Labels],
    test: tuple[Images, Labels],
    classes: int,
    transform: Transform,
    augment: Augment | None = None,
) -> DatasetSplits:
    """Limits, transforms and names a data set, without a validation split.

    Args:
        train: images ``(n, channels, height, width)`` as bytes, and labels ``(n,)``.
        test: the same.
        classes: number of labels, counted from 0.
        augment: of training images.

    Raises:
        DataError: a limit does not fit.
    """
    training = _dataset(*train, transform, "limit_train", settings.limit_train, augment)
    evaluated = _dataset(*test, transform, "limit_eval", settings.limit_eval)
    return DatasetSplits(settings.name, training, None, evaluated, classes, _digest(training, evaluated))


def _dataset(
    images: Images, labels: Labels, transform: Transform, key: str, limit: int | None, augment: Augment | None = None
) -> InMemoryDataset:
    check_limit(key, limit, len(labels))
    return InMemoryDataset(transform.resize(images[:limit]), labels[:limit], transform.table, augment)


def _digest(*datasets: InMemoryDataset) -> str:
    sha = hashlib.sha256()
    for dataset in datasets:
        sha.update(f"{dataset.images.shape}".encode())
        for array in (dataset.table, dataset.images, dataset.labels):
            sha.update(array.data.cast("B"))
    return sha.hexdigest()
