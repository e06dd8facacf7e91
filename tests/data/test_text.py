"""Texts as blocks of characters: what a sample is, how blocks move, and which files are refused."""

import hashlib
import os
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from msaccel.data.dataset import DatasetSplits
from msaccel.data.download.install import md5_of
from msaccel.data.load import load_datasets
from msaccel.data.sets import shakespeare
from msaccel.data.text import TextDataset, load_text
from msaccel.errors import DataError
from msaccel.schema import DataSettings

BLOCK = 8
LINES = "".join(f"line {number} of a text, é and 文.\n" for number in range(60))


def settings(**changed: object) -> DataSettings:
    given = {"limit_train": None, "limit_eval": None, "val_fraction": 0.0, **changed}
    return DataSettings(name="shakespeare", transform="characters", **given)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "own.txt"
    path.write_text(LINES, encoding="utf-8")
    return path


def read(numbers: np.ndarray, vocabulary: str) -> str:
    return "".join(vocabulary[number] for number in numbers)


def test_a_block_and_what_follows_each_of_its_characters(file: Path) -> None:
    data = load_text(file, settings(), BLOCK, seed=0)
    assert data.vocabulary == "".join(sorted(set(LINES))) and data.classes == len(data.vocabulary)
    split = int(len(LINES) * 0.9)
    for part, text in ((data.train, LINES[:split]), (data.test, LINES[split:])):
        assert part.shape == (BLOCK,) and part.targets == BLOCK
        characters, labels = part.batch(np.arange(len(part)))
        assert characters.dtype == labels.dtype == np.int32
        assert characters.flags.c_contiguous and labels.flags.c_contiguous
        for start, x, y in zip(part.names(np.arange(len(part))), characters, labels, strict=True):
            assert read(x, data.vocabulary) == text[start : start + BLOCK]
            assert read(y, data.vocabulary) == text[start + 1 : start + BLOCK + 1]
    assert len(data.test) == (len(LINES) - split - 1) // BLOCK


def test_training_blocks_move_with_seed_and_epoch(file: Path) -> None:
    data = load_text(file, settings(), BLOCK, seed=3)
    text, everything = LINES[: int(len(LINES) * 0.9)], np.arange(len(data.train))
    offsets = []
    for epoch in range(40):
        blocks = [read(row, data.vocabulary) for row in data.train.batch(everything, epoch)[0]]
        offsets.append(text.index(blocks[0]))
        assert "".join(blocks) == text[offsets[-1] : offsets[-1] + BLOCK * len(blocks)]
    assert set(offsets) == set(range(BLOCK))
    again = load_text(file, settings(), BLOCK, seed=3).train.batch(everything, 1)
    np.testing.assert_array_equal(again[0], data.train.batch(everything, 1)[0])
    others = [load_text(file, settings(), BLOCK, seed).train.batch(everything, 1)[0] for seed in range(5)]
    assert len({other.tobytes() for other in others}) > 1


def test_held_out_blocks_are_not_reached(file: Path) -> None:
    """Neither side of a validation split moves, so no character is predicted on both."""
    data = load_datasets_of(file, val_fraction=0.25)
    assert isinstance(data.train, TextDataset) and isinstance(data.validation, TextDataset)
    places = [set(part.names(np.arange(len(part)))) for part in (data.train, data.validation)]
    assert not places[0] & places[1]
    assert all(place % BLOCK == 0 for place in places[0] | places[1])
    indices = np.arange(len(data.train))
    np.testing.assert_array_equal(data.train.batch(indices, 5)[0], data.train.batch(indices)[0])


def load_datasets_of(file: Path, **changed: object) -> DatasetSplits:
    given = {"limit_train": None, "limit_eval": None, "val_fraction": 0.0, "transform": "characters", **changed}
    return load_datasets(shakespeare.SETTINGS("shakespeare", root=str(file), cache="", **given), 0, (BLOCK,))


def test_a_folder_with_the_file_and_a_name_of_its_own(file: Path) -> None:
    alone = load_datasets_of(file)
    assert alone.name == f"text-{md5_of(file)[:8]}"  # type: ignore[index]
    file.rename(file.with_name("input.txt"))
    assert load_datasets_of(file.parent).digest == alone.digest


def test_shakespeare_keeps_its_name_wherever_it_lies(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    digest = hashlib.md5(file.read_bytes()).hexdigest()
    monkeypatch.setattr(shakespeare, "SOURCE", replace(shakespeare.SOURCE, files={"input.txt": digest}))
    assert load_datasets_of(file).name == "shakespeare"


def test_limits_are_blocks(file: Path) -> None:
    data = load_text(file, settings(limit_train=5, limit_eval=2), BLOCK, seed=0)
    assert (len(data.train), len(data.test)) == (5, 2)
    assert data.train.batch(np.arange(5), 7)[0].shape == (5, BLOCK)
    with pytest.raises(DataError, match=r"^data\.limit_eval=1000 does not fit \d+ samples"):
        load_text(file, settings(limit_eval=1000), BLOCK, seed=0)


def test_the_digest_is_of_what_is_used(file: Path) -> None:
    same = load_text(file, settings(), BLOCK, 0).digest
    assert same == load_text(file, settings(), BLOCK, 1).digest
    assert same != load_text(file, settings(), BLOCK + 1, 0).digest
    assert same != load_text(file, settings(limit_train=5), BLOCK, 0).digest
    file.write_text(LINES.replace("line 59", "line 58"))
    assert same != load_text(file, settings(), BLOCK, 0).digest


def test_every_character_of_unicode_is_one(tmp_path: Path) -> None:
    path = tmp_path / "planes.txt"
    path.write_text("a\0é文𝄞🎭" * 100, encoding="utf-8")
    assert load_text(path, settings(), BLOCK, 0).vocabulary == "\0aé文𝄞🎭"


SHORT = "the last tenth of them makes no block of 8 and one more"
REFUSED = {
    "empty": (b"", "has 0 distinct characters"),
    "one character": (b"a", "has 1 distinct characters"),
    "one distinct character": (b"a" * 1000, "has 1 distinct characters"),
    "too short for a block": (b"ab" * 40, f"has 80 characters, and {SHORT}"),
    "no UTF-8": (b"abcd" * 100 + b"\xff", "is no text in UTF-8 (byte 400 is 0xff)"),
    "cut inside a character": ("abcé".encode()[:-1], "is no text in UTF-8 (byte 3 is 0xc3)"),
    "surrogate": (b"\xed\xa0\x80", "is no text in UTF-8 (byte 0 is 0xed)"),
}


@pytest.mark.parametrize(("content", "phrase"), REFUSED.values(), ids=REFUSED)
def test_a_file_that_is_no_such_text(tmp_path: Path, content: bytes, phrase: str) -> None:
    path = tmp_path / "own.txt"
    path.write_bytes(content)
    with pytest.raises(DataError, match=r"^[^\n]+data\.root=FILE[^\n]*$") as refused:
        load_text(path, settings(), BLOCK, seed=0)
    assert str(refused.value).startswith(f"{path} {phrase}")


def test_the_shortest_text(tmp_path: Path) -> None:
    path = tmp_path / "own.txt"
    path.write_bytes(b"ab" * 41)  # of which the last nine make one block
    data = load_text(path, settings(), BLOCK, seed=0)
    assert len(data.test) == 1 and len(data.train) == (73 - BLOCK) // BLOCK
    for epoch in range(30):
        data.train.batch(np.arange(len(data.train)), epoch)


def test_a_file_too_large_is_not_read(tmp_path: Path) -> None:
    path = tmp_path / "own.txt"
    path.touch()
    os.truncate(path, 2 << 30)
    with pytest.raises(DataError) as refused:
        load_text(path, settings(), BLOCK, seed=0)
    assert str(refused.value) == (
        f"{path} has 2,147,483,648 bytes, and 67,108,864 at most are read: give a shorter text with data.root=FILE"
    )


@pytest.mark.parametrize("path", ["/dev/zero", "pipe", "absent", "."])
def test_what_is_no_regular_file(tmp_path: Path, path: str) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(DataError, match=r"^[^\n]+ cannot be read \([^\n]+$"):
        load_text(tmp_path / path, settings(), BLOCK, seed=0)
