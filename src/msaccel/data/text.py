"""A text as blocks of characters: a block is a sample, and its labels are the characters that follow each of its own.

The first nine tenths of the text are the training set, the rest is the test set, as in nanoGPT. In epoch e training
blocks begin at o, o + block, o + 2 · block …, where the offset o < block is a random number that depends on seed and e
alone. So no character is used twice in an epoch, and epochs with another offset cut the text into other blocks.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from msaccel.data.counter_rng import uniform
from msaccel.data.dataset import Batch, Dataset, DatasetSplits, check_limit
from msaccel.data.files import explain_read_errors, open_bounded
from msaccel.data.sampler import Indices
from msaccel.errors import DataError
from msaccel.schema import DataSettings

MAX_CHARACTERS = 1 << 16  # distinct ones
TRAIN_SHARE = 0.9


@dataclass(frozen=True, eq=False)
class TextDataset(Dataset):
    """Blocks of a text in memory, two bytes a character.

    Attributes:
        characters: their numbers in the vocabulary, shape ``(characters,)``.
        starts: where each block begins at offset 0, shape ``(n,)``; ``block`` characters and one more follow.
        block: characters of a block.
        seed: for the offsets; None for an offset of 0 in every epoch.
    """

    characters: NDArray[np.uint16]
    starts: Indices
    block: int
    seed: int | None = None

    @property
    def shape(self) -> tuple[int, ...]:
        return (self.block,)

    @property
    def targets(self) -> int:
        return self.block

    def __len__(self) -> int:
        return len(self.starts)

    def batch(self, indices: Indices, epoch: int | None = None) -> Batch:
        """Returns characters and the characters that follow each of them, both int32 ``(n, block)``."""
        starts = self.starts[indices] + self._offset(epoch)
        rows = self.characters[starts[:, None] + np.arange(self.block + 1)].astype(np.int32)
        return np.ascontiguousarray(rows[:, :-1]), np.ascontiguousarray(rows[:, 1:])

    def names(self, indices: Indices) -> list[int]:
        """Where the blocks begin in the training or test text at offset 0, in characters."""
        return self.starts[indices].tolist()

    def subset(self, indices: Indices) -> TextDataset:
        """These blocks, at offset 0 in every epoch: at another one they would reach into those that are left out."""
        return replace(self, starts=self.starts[indices], seed=None)

    def _offset(self, epoch: int | None) -> int:
        if self.seed is None or epoch is None:
            return 0
        return int(uniform(self.seed, epoch, np.zeros(1, np.int64), 1)[0, 0] * self.block)


def load_text(path: Path, settings: DataSettings, block: int, seed: int) -> DatasetSplits:
    """Reads a text in UTF-8; its vocabulary is its characters in the order of their code points.

    Raises:
        DataError: the file cannot be read, is no such text, or is too short for a block or a limit.
    """
    with explain_read_errors(path), open_bounded(path, "give a shorter text with data.root=FILE") as file:
        content = file.read()
    characters, vocabulary = _numbered(path, content)
    split = int(len(characters) * TRAIN_SHARE)
    if min(split - block, len(characters) - split) <= block:
        raise DataError(
            f"{path} has {len(characters):,} characters, and the last tenth of them makes no block of {block} and one "
            "more: give a longer text with data.root=FILE, or a smaller model.block"
        )
    # Training blocks may move by up to block − 1.
    train = _blocks(characters[:split], block, block, "limit_train", settings.limit_train)
    test = _blocks(characters[split:], block, 1, "limit_eval", settings.limit_eval)
    sizes = f"{len(train)} {len(test)} {block} ".encode()
    digest = hashlib.sha256(sizes + content).hexdigest()
    train = replace(train, seed=seed)
    return DatasetSplits(settings.name, train, None, test, len(vocabulary), digest, vocabulary)


def _numbered(path: Path, content: bytes) -> tuple[NDArray[np.uint16], str]:
    try:
        codes = np.frombuffer(content.decode().encode("utf-32-le"), np.uint32)
    except UnicodeDecodeError as error:
        raise DataError(
            f"{path} is no text in UTF-8 (byte {error.start:,} is {content[error.start]:#04x}): "
            "give another one with data.root=FILE"
        ) from error
    used = np.zeros(0x110000, np.bool_)
    used[codes] = True
    distinct = np.flatnonzero(used)
    if not 2 <= len(distinct) <= MAX_CHARACTERS:
        raise DataError(
            f"{path} has {len(distinct):,} distinct characters, and 2 to {MAX_CHARACTERS:,} can be learned: "
            "give another text with data.root=FILE"
        )
    numbers = np.zeros(len(used), np.uint16)
    numbers[distinct] = np.arange(len(distinct))
    return numbers[codes], "".join(map(chr, distinct))


def _blocks(characters: NDArray[np.uint16], block: int, more: int, key: str, limit: int | None) -> TextDataset:
    """All blocks of a text, or the first ones, so that ``more`` characters follow the last."""
    count = (len(characters) - more) // block
    check_limit(key, limit, count)
    return TextDataset(characters, np.arange(limit or count) * block, block)
