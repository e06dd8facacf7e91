"""Samples that are decoded when they are drawn, by threads that work ahead.

Pillow releases Python's lock while it decodes and resizes, so threads use several cores. A batch is a function of its
indices and epoch: which thread decodes a picture, and when, changes nothing.

Memory is bounded: ``ahead`` batches wait at most, of 602 KB for each picture of 224 × 224. A picture that cannot be
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

from msaccel.data.augment import DRAWS
from msaccel.data.counter_rng import uniform
from msaccel.data.image_folder import decode
from msaccel.data.sampler import Indices
from msaccel.data.samples import Batch, Labels, Samples
from msaccel.errors import DataError, on_one_line

_CHUNK = 4  # pictures of one piece of work: tens of milliseconds, against 0.1 for handing it over


class Files(Protocol):
    """Where pictures lie: an image folder, or MindRecord."""

    @property
    def mend(self) -> str:
        """What to do about a picture that cannot be decoded."""

    def name(self, number: int) -> str: ...

    def read(self, number: int) -> bytes: ...


@dataclass(frozen=True, eq=False)
class ImageFiles(Samples):
    """One set of pictures in files.

    Attributes:
        files: of the whole set.
        numbers: of this set's pictures in the whole one, shape ``(n,)``.
        labels: of this set's pictures, shape ``(n,)``.
        size: height and width for the network.
        seed: of the augmentation; None to show training the pictures as evaluated.
        workers: threads that decode.
    """

    files: Files
    numbers: Indices
    labels: Labels
    size: int
    seed: int | None
    workers: int

    @property
    def shape(self) -> tuple[int, int, int]:
        return 3, self.size, self.size

    def part(self, indices: Indices) -> ImageFiles:
        return replace(self, numbers=self.numbers[indices], labels=self.labels[indices])

    def names(self, indices: Indices) -> list[str]:
        return [self.files.name(int(number)) for number in self.numbers[indices]]

    def batch(self, indices: Indices, epoch: int | None = None) -> Batch:
        work, finished = self._batch(indices, epoch)
        for piece in work:
            piece()
        return finished

    def batches(
        self, wanted: Iterable[Indices], epoch: int | None = None, ahead: int = 2
    ) -> Generator[Batch, None, None]:
        """Yields the batch of each of ``wanted``, with ``ahead`` of them being decoded meanwhile."""
        pool = ThreadPoolExecutor(self.workers, "pictures")
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
        numbers = self.numbers[indices]
        images = np.empty((len(numbers), *self.shape), np.float32)
        draws = None if epoch is None or self.seed is None else uniform(self.seed, epoch, numbers, DRAWS)

        def piece(first: int) -> None:
            for place in range(first, min(first + _CHUNK, len(numbers))):
                images[place] = self._image(int(numbers[place]), None if draws is None else draws[place])

        work = [partial(piece, first) for first in range(0, len(numbers), _CHUNK)]
        return work, (images, self.labels[indices])

    def _image(self, number: int, draws: NDArray[np.float64] | None) -> NDArray[np.float32]:
        picture = read(self.files, number)
        if draws is None:
            return decode.normalised(decode.evaluation_view(picture, self.size))
        return decode.normalised(decode.training_view(picture, self.size, draws.tolist()))


def read(files: Files, number: int) -> Image.Image:
    """One picture, decoded.

    Raises:
        DataError: it cannot be.
    """
    try:
        return decode.decode(files.read(number))
    except OSError as error:
        reason = f"cannot be read ({error.strerror})"
    except decode.Broken as error:
        reason = str(error)
    raise DataError(f"{on_one_line(files.name(number), 500)} {reason}: {files.mend}")


def _finished(work: list[Future[None]], batch: Batch) -> Batch:
    for piece in work:
        piece.result()
    return batch
