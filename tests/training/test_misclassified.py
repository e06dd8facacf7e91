"""The mistakes of an evaluation: each sample counted once, over batches and ranks, and the surest kept."""

import errno
import json
import subprocess
import sys
from pathlib import Path
from typing import BinaryIO

import numpy as np
import pytest
from matplotlib.figure import Figure
from numpy.typing import NDArray

from msaccel.data.dataset import InMemoryDataset
from msaccel.distributed.communicator import Communicator
from msaccel.training.evaluation import Evaluator
from msaccel.training.misclassified import CONFUSION, FILES, NUMBERS, WORST, Mistakes

CLASSES, SAMPLES = 4, 60


@pytest.fixture
def seen() -> tuple[NDArray, NDArray]:
    """Logits and labels of so many samples."""
    draw = np.random.default_rng(0)
    return draw.normal(0, 2, (SAMPLES, CLASSES)).astype(np.float32), draw.integers(0, CLASSES, SAMPLES, np.int32)


def counted(seen: tuple[NDArray, NDArray], batches: list[NDArray]) -> Mistakes:
    found = Mistakes(CLASSES)
    for samples in batches:
        found.add(samples, seen[0][samples], seen[1][samples])
    return found


class TwoRanks(Communicator):
    """Gathers what another rank has in this process."""

    def __init__(self, other: Mistakes) -> None:
        self.others = [other.confusion, other.worst]

    def all_gather(self, values: NDArray) -> NDArray:
        return np.stack([values, self.others.pop(0)])


def test_what_is_counted(seen: tuple[NDArray, NDArray]) -> None:
    found, (logits, labels) = counted(seen, np.array_split(np.arange(SAMPLES), 7)), seen
    predicted = logits.argmax(1)
    for label, other in np.ndindex(CLASSES, CLASSES):
        assert found.confusion[label, other] == ((labels == label) & (predicted == other)).sum()
    probability = np.exp(logits.astype(float)) / np.exp(logits.astype(float)).sum(1, keepdims=True)
    wrong = sorted(((probability[i].max(), i) for i in np.flatnonzero(predicted != labels)), reverse=True)[:16]
    assert found.worst[:, 1].tolist() == [number for _, number in wrong]
    assert found.worst[:, 0] == pytest.approx([sure for sure, _ in wrong])


def test_shares_of_ranks_add_up(seen: tuple[NDArray, NDArray]) -> None:
    batches = np.array_split(np.arange(SAMPLES), 7)
    whole, mine, others = counted(seen, batches), counted(seen, batches[::2]), counted(seen, batches[1::2])
    mine.gather(TwoRanks(others))
    np.testing.assert_array_equal(mine.confusion, whole.confusion)
    np.testing.assert_array_equal(mine.worst, whole.worst)


def test_what_is_written(seen: tuple[NDArray, NDArray], tmp_path: Path) -> None:
    images = np.random.default_rng(0).integers(0, 256, (SAMPLES, 3, 8, 8), np.uint8)
    split = InMemoryDataset(images, seen[1], np.linspace(-1, 1, 256, dtype=np.float32))
    found = counted(seen, [np.arange(SAMPLES)])
    found.save(tmp_path, split)
    assert {path.name for path in tmp_path.iterdir()} == set(FILES)
    written = json.loads((tmp_path / NUMBERS).read_text())
    assert np.sum(written["confusion"]) == SAMPLES and len(written["worst"]) == 16
    first = written["worst"][0]
    assert first["label"] == seen[1][first["sample"]] != first["predicted"] and 0 < first["probability"] < 1


def test_without_a_mistake_there_is_no_picture_of_the_worst(tmp_path: Path) -> None:
    found, labels = Mistakes(2), np.array([0, 1], np.int32)
    found.add(np.arange(2), np.eye(2, dtype=np.float32), labels)
    found.save(tmp_path, InMemoryDataset(np.zeros((2, 1, 4, 4), np.uint8), labels, np.zeros(256, np.float32)))
    assert (tmp_path / CONFUSION).exists() and not (tmp_path / WORST).exists()


class Points(InMemoryDataset):
    """Samples that are no images."""

    @property
    def shape(self) -> tuple[int, ...]:
        return (16,)


def test_samples_that_are_no_images_are_listed_without_a_picture(tmp_path: Path) -> None:
    found, labels = Mistakes(2), np.array([1, 0], np.int32)
    found.add(np.arange(2), np.eye(2, dtype=np.float32), labels)
    found.save(tmp_path, Points(np.zeros((2, 16), np.uint8), labels, np.zeros(256, np.float32)))
    assert len(json.loads((tmp_path / NUMBERS).read_text())["worst"]) == 2
    assert (tmp_path / CONFUSION).exists() and not (tmp_path / WORST).exists()


def test_a_full_disk_leaves_nothing_half_written(
    seen: tuple[NDArray, NDArray], patches: InMemoryDataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(figure: Figure, file: BinaryIO, **options: object) -> None:
        file.write(b"half")
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(Figure, "savefig", full)
    with pytest.raises(OSError, match="No space left"):
        counted(seen, [np.arange(SAMPLES)]).save(tmp_path, patches)
    assert [file.name for file in tmp_path.iterdir()] == [NUMBERS]


def test_a_score_is_the_same_with_and_without_them(tiny, patches: InMemoryDataset) -> None:
    evaluator, found = Evaluator(tiny()), Mistakes(CLASSES)
    score = evaluator(patches, found)
    assert evaluator(patches) == score
    assert np.trace(found.confusion) / len(patches) == score.accuracy and found.confusion.sum() == len(patches)


@pytest.mark.slow
def test_training_does_not_wait_for_what_only_draws() -> None:
    code = "import sys, msaccel.training.job; sys.exit('matplotlib' in sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)
