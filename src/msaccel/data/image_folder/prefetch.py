"""Image files that are decoded when a batch needs them, by threads that prefetch.

Pillow releases Python's lock while it decodes and resizes, so threads use several cores. A batch is a function of its
indices and epoch: which thread decodes an image, and when, changes nothing.

Memory is bounded: at most ``ahead`` batches wait, with 602 KB for each image of 224 × 224. An image that cannot be
decoded ends the batch with an error, and closing the generator ends its threads.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from typing import Protocol

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from msaccel.data.augment import RANDOM_NUMBERS
from msaccel.data.counter_rng import uniform
from msaccel.data.dataset import Batch, ImageDataset, Labels
from msaccel.data.image_folder import decode
from msaccel.data.sampler import Indices
from msaccel.errors import DataError, on_one_line

_CHUNK = 4  # images that a thread decodes in a row: tens of milliseconds, against 0.1 for handing them over


class ImageSource(Protocol):
    """Where encoded images are read from: an image folder, or a MindRecord file."""

    @property
    def labels(self) -> Labels: ...

    @property
    def advice(self) -> str:
        """What to do about an image that cannot be decoded."""

    def name(self, number: int) -> str: ...

    def read(self, number: int) -> bytes: ...


@dataclass(frozen=True, eq=False)
class ImageFileDataset(ImageDataset):
    """Images in files.

    Attributes:
        source: of the whole set.
        positions: of this set's images in the source, shape ``(n,)``.
        labels: of this set's images, shape ``(n,)``.
        size: height and width for the network.
        seed: of the augmentation; None for no augmentation.
        workers: threads that decode.
    """

    source: ImageSource
    positions: Indices
    labels: Labels
    size: int
    seed: int | None
    workers: int

    @property
    def shape(self) -> tuple[int, int, int]:
        return 3, self.size, self.size

    def resized(self, height: int, width: int) -> ImageFileDataset:
        """The same samples, resized from the decoded images at once; height and width are equal."""
        return replace(self, size=height)

    def subset(self, indices: Indices) -> ImageFileDataset:
        return replace(self, positions=self.positions[indices], labels=self.labels[indices])

    def names(self, indices: Indices) -> list[str]:
        return [self.source.name(int(position)) for position in self.positions[indices]]

    def batch(self, indices: Indices, epoch: int | None = None) -> Batch:
        work, finished = self._batch(indices, epoch)
        for piece in work:
            piece()
        return finished

    def batches(
        self, wanted: Iterable[Indices], epoch: int | None = None, ahead: int = 2
    ) -> Generator[Batch, None, None]:
        """Yields one batch for each of ``wanted``, while the next ``ahead`` are being decoded."""
        pool = ThreadPoolExecutor(self.workers, "images")
        begun: deque[tuple[list[Future[None]], Batch]] = deque()
        try:
            for indices in wanted:
                work, batch = self._batch(indices, epoch)
                begun.append(([pool.submit(piece) for piece in work], batch))
                if len(begun) > ahead:
                    yield _finished(*begun.popleft())
            while begun:
                yield _finished(*begun.popleft())
        finally:
            pool.shutdown(cancel_futures=True)

    def _batch(self, indices: Indices, epoch: int | None) -> tuple[Sequence[Callable[[], None]], Batch]:
        """A batch whose images are not there yet, and the pieces of work that put them there."""
        positions = self.positions[indices]
        images = np.empty((len(positions), *self.shape), np.float32)
        numbers = None
        if epoch is not None and self.seed is not None:
            numbers = uniform(self.seed, epoch, positions, RANDOM_NUMBERS)

        def piece(first: int) -> None:
            for place in range(first, min(first + _CHUNK, len(positions))):
                images[place] = self._image(int(positions[place]), None if numbers is None else numbers[place])

        work = [partial(piece, first) for first in range(0, len(positions), _CHUNK)]
        return work, (images, self.labels[indices])

    def _image(self, position: int, numbers: NDArray[np.float64] | None) -> NDArray[np.float32]:
        image = read_image(self.source, position)
        if numbers is None:
            return decode.normalise(decode.evaluation_view(image, self.size))
        return decode.normalise(decode.training_view(image, self.size, numbers.tolist()))


def read_image(source: ImageSource, number: int) -> Image.Image:
    """Reads and decodes one image.

    Raises:
        DataError: it cannot be.
    """
    try:
        return decode.decode(source.read(number))
    except OSError as error:
        reason = f"cannot be read ({error.strerror})"
    except decode.DecodeError as error:
        reason = str(error)
    raise DataError(f"{on_one_line(source.name(number), 500)} {reason}: {source.advice}")


def _finished(work: list[Future[None]], batch: Batch) -> Batch:
    for piece in work:
        piece.result()
    return batch
