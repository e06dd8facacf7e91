"""What every set of samples can do, wherever its pictures are."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Generator, Iterable
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from msaccel.data.sampler import Indices

Labels: TypeAlias = NDArray[np.int32]
Batch: TypeAlias = tuple[NDArray[np.float32], Labels]


class Samples(ABC):
    """One set of samples.

    Attributes:
        labels: shape ``(n,)``, counted from 0.
        shape: channels, height and width of an image as the network sees it.
    """

    labels: Labels

    @property
    @abstractmethod
    def shape(self) -> tuple[int, int, int]: ...

    def __len__(self) -> int:
        return len(self.labels)

    @abstractmethod
    def batch(self, indices: Indices, epoch: int | None = None) -> Batch:
        """Returns the images as float32 ``(n, channels, height, width)`` and the labels ``(n,)``.

        Args:
            indices: which samples, shape ``(n,)``.
            epoch: the training epoch that augments them, counted from 0; None for the pictures as evaluated.
        """

    def batches(
        self, wanted: Iterable[Indices], epoch: int | None = None, ahead: int = 2
    ) -> Generator[Batch, None, None]:
        """Yields the batch of each of ``wanted``; where pictures have to be decoded, ``ahead`` of them beforehand."""
        for indices in wanted:
            yield self.batch(indices, epoch)

    @abstractmethod
    def names(self, indices: Indices) -> list[int] | list[str]:
        """What a user finds the samples by: their numbers in the files, counted from 0, or the names of their files."""

    @abstractmethod
    def part(self, indices: Indices) -> Samples:
        """The samples at ``indices``, as a set of their own that is augmented as before."""
