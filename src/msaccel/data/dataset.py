"""What a job trains and evaluates on: a data set gives batches of samples and labels, by index."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Iterable
from dataclasses import dataclass, replace
from typing import Any, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from msaccel.data.sampler import Indices
from msaccel.data.transforms import Images, Table, look_up, shrink
from msaccel.errors import DataError

Labels: TypeAlias = NDArray[np.int32]
Batch: TypeAlias = tuple[NDArray[Any], Labels]
Augment: TypeAlias = Callable[[Images, int, Indices], Images]


class Dataset(ABC):
    """One set of labelled samples, such as the training set.

    Attributes:
        labels: one for each sample, or an array of them, counted from 0: shape ``(n, ...)``.
        shape: of a sample as the network sees it; of an image channels, height and width.
    """

    labels: Labels

    @property
    @abstractmethod
    def shape(self) -> tuple[int, ...]: ...

    @property
    def targets(self) -> int:
        """The number of labels of a sample: 1 for an image, one for each character for a block of text."""
        return 1

    def __len__(self) -> int:
        return len(self.labels)

    @abstractmethod
    def batch(self, indices: Indices, epoch: int | None = None) -> Batch:
        """Returns samples, in the type that the network reads, and their labels: shapes ``(n, *shape)``, ``(n, ...)``.

        Args:
            indices: which samples, shape ``(n,)``.
            epoch: the training epoch, counted from 0, whose augmentation is applied; None for no augmentation.
        """

    def batches(
        self, wanted: Iterable[Indices], epoch: int | None = None, ahead: int = 2
    ) -> Generator[Batch, None, None]:
        """Yields one batch for each of ``wanted``; where images must be decoded, ``ahead`` batches are prefetched."""
        for indices in wanted:
            yield self.batch(indices, epoch)

    @abstractmethod
    def names(self, indices: Indices) -> list[int] | list[str]:
        """How a user can find the samples: their positions in the data files, from 0, or the names of their files."""

    @abstractmethod
    def subset(self, indices: Indices) -> Dataset:
        """The samples at ``indices`` as a data set; each is augmented as it is in the whole set."""


class ImageDataset(Dataset):
    """Samples that are images."""

    @property
    @abstractmethod
    def shape(self) -> tuple[int, int, int]: ...

    @abstractmethod
    def resized(self, height: int, width: int) -> ImageDataset:
        """The same samples, augmented alike, as smaller images."""


class EpochSamples(Protocol):
    """What the epochs of a job train on: in each as many samples as the training set has, in the same order."""

    def of(self, epoch: int) -> Dataset:
        """The samples of an epoch, counted from 0."""

    def report(self, epoch: int) -> dict[str, float]:
        """Metrics of an epoch by name."""


@dataclass(frozen=True)
class SameEveryEpoch:
    """The training set itself."""

    samples: Dataset

    def of(self, epoch: int) -> Dataset:
        return self.samples

    def report(self, epoch: int) -> dict[str, float]:
        return {}


@dataclass(frozen=True, eq=False)
class InMemoryDataset(ImageDataset):
    """Images in memory, one byte a pixel; a table turns the bytes into the network's input when a batch is made.

    Attributes:
        images: bytes after resizing, shape ``(n, channels, height, width)``.
        labels: shape ``(n,)``, counted from 0.
        table: the network's input for each byte value, shape ``(256,)`` or ``(channels, 256)``.
        augment: maps images, epoch and the samples' positions to the images of that epoch; None for no augmentation.
        positions: of the samples in the whole set, in file order, shape ``(n,)``; None if this is the whole set.
        size: height and width to which images are made smaller after augmentation; None for no change.
    """

    images: Images
    labels: Labels
    table: Table
    augment: Augment | None = None
    positions: Indices | None = None
    size: tuple[int, int] | None = None

    @property
    def shape(self) -> tuple[int, int, int]:
        height, width = self.size or self.images.shape[2:]
        return self.images.shape[1], height, width

    def resized(self, height: int, width: int) -> InMemoryDataset:
        return replace(self, size=(height, width))

    def batch(self, indices: Indices, epoch: int | None = None) -> Batch:
        """Returns the images as float32 ``(n, channels, height, width)`` and the labels ``(n,)``.

        The lookup takes 17 us for 32 images of 32 x 32. A copy from float32 images would take 8 us, and hold
        287 MB more for MNIST on every rank.
        """
        images = self.images[indices]
        if epoch is not None and self.augment is not None:
            images = self.augment(images, epoch, self._positions(indices))
        if self.size is not None:
            images = shrink(images, *self.size)
        return look_up(self.table, images), self.labels[indices]

    def names(self, indices: Indices) -> list[int]:
        """The samples' positions in the whole set, in file order."""
        return self._positions(indices).tolist()

    def subset(self, indices: Indices) -> InMemoryDataset:
        images, labels = self.images[indices], self.labels[indices]
        return replace(self, images=images, labels=labels, positions=self._positions(indices))

    def _positions(self, indices: Indices) -> Indices:
        return indices if self.positions is None else self.positions[indices]


@dataclass(frozen=True, eq=False)
class DatasetSplits:
    """The training, validation and test set of a job.

    Attributes:
        name: the name of the data.
        train: training set, without the validation samples.
        validation: samples split off the training set, or None.
        test: test set.
        classes: number of labels.
        digest: sha256 of all training samples (before the split) and test samples as the network sees them; for image
            folders, of their list of files.
        vocabulary: the characters of a text in the order of their numbers; empty for images.
    """

    name: str
    train: Dataset
    validation: Dataset | None
    test: Dataset
    classes: int
    digest: str
    vocabulary: str = ""


def check_limit(key: str, limit: int | None, size: int) -> None:
    """Checks how many of ``size`` samples a job asks for.

    Raises:
        DataError: fewer than one, or more than there are.
    """
    if limit is not None and not 1 <= limit <= size:
        raise DataError(f"data.{key}={limit} does not fit {size} samples: give 1 to {size} or null")
