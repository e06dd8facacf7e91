"""What the processes of a job take from the training set: together exactly what one process takes, in its order."""

from collections.abc import Iterator

import numpy as np
import pytest

from msaccel.data.augment import CropAndFlip
from msaccel.data.dataset import Batch, InMemoryDataset
from msaccel.data.sampler import Indices, Sampler
from msaccel.data.transforms import CIFAR10
from msaccel.distributed.communicator import SINGLE_PROCESS, Communicator
from msaccel.step.update import Elsewhere
from msaccel.training.loader import Loader

SAMPLES = 23


@pytest.fixture
def split() -> InMemoryDataset:
    images = np.random.default_rng(0).integers(256, size=(SAMPLES, 3, 8, 8), dtype=np.uint8)
    labels = np.arange(SAMPLES, dtype=np.int32)
    return InMemoryDataset(images, labels, CIFAR10.table, CropAndFlip(3, 4, "zeros", "random"))


class OneOf(Communicator):
    def __init__(self, rank: int, world_size: int) -> None:
        self.rank, self.world_size = rank, world_size


@pytest.mark.parametrize(("ranks", "steps", "micro"), [(2, 2, 3), (4, 1, 2), (3, 3, 1), (2, 1, 23)])
def test_processes_share_what_one_process_takes(split: InMemoryDataset, ranks: int, steps: int, micro: int) -> None:
    sampler = Sampler(SAMPLES, 0, micro, steps, ranks)
    whole = list(Loader(split, SINGLE_PROCESS).epoch(sampler, 1))
    shares = [list(Loader(split, OneOf(rank, ranks)).epoch(sampler, 1)) for rank in range(ranks)]
    assert len(whole) == sampler.updates_per_epoch
    for update, windows in enumerate(whole):
        for rank, window in enumerate(windows):
            for process in range(ranks):
                found = shares[process][update][rank]
                if process != rank:
                    assert isinstance(found, Elsewhere) and list(found.sizes) == [len(labels) for _, labels in window]
                    continue
                for (images, labels), (expected, their_labels) in zip(found, window, strict=True):
                    np.testing.assert_array_equal(images, expected)
                    np.testing.assert_array_equal(labels, their_labels)


def test_the_next_update_is_made_ready_and_no_more(split: InMemoryDataset) -> None:
    asked: list[int] = []

    class Counting(InMemoryDataset):
        def batches(self, wanted: Iterator[Indices], epoch: int | None = None, ahead: int = 2) -> Iterator[Batch]:
            asked.append(ahead)
            return super().batches(wanted, epoch, ahead)

    counting = Counting(split.images, split.labels, split.table)
    next(Loader(counting, SINGLE_PROCESS).epoch(Sampler(SAMPLES, 0, 1, 4, 2), 0))
    next(Loader(counting, OneOf(0, 2)).epoch(Sampler(SAMPLES, 0, 1, 4, 2), 0))
    next(Loader(counting, SINGLE_PROCESS).epoch(Sampler(SAMPLES, 0, 5), 0))
    assert asked == [8, 4, 2]
