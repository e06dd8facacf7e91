"""`python -m msaccel data`: CIFAR-10 as JPEG files, and looking through a folder."""

import os
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from msaccel.__main__ import main
from msaccel.data import cifar_files
from msaccel.data.image_folder.listing import list_splits, read_data_name

from .conftest import write_files
from .test_cifar_files import FILES, records
from .test_image_folder import jpeg, make_tree


@pytest.fixture
def source(tmp_path: Path) -> Path:
    return write_files(tmp_path / "cifar10", {name: records(20, seed) for seed, name in enumerate(FILES)})


@pytest.mark.parametrize("limit", [None, 12])
def test_cifar_becomes_an_image_folder(source: Path, tmp_path: Path, limit: int | None) -> None:
    root = tmp_path / "jpeg"
    cifar_files.write_image_folder(source, root, limit)
    train, evaluation = list_splits(root)
    assert (len(train), len(evaluation)) == ((100, 20) if limit is None else (limit, limit))
    assert train.classes == cifar_files.CLASSES and read_data_name(root, "imagenet") == "cifar10-upscaled"
    for listing, files in ((train, cifar_files.TRAIN), (evaluation, cifar_files.TEST)):
        images, labels = cifar_files.read(source, files)
        for name, label in zip(listing.names, listing.labels, strict=True):
            number = int(Path(name).stem)
            assert labels[number] == label
            with Image.open(root / name) as picture:
                found = np.asarray(picture, int).transpose(2, 0, 1)
            assert np.abs(found - images[number]).mean() < 6, "noise in quality 95"


def test_nothing_is_left_of_a_tree_that_cannot_be_written(
    source: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (source / "test_batch.bin").write_bytes(b"")
    monkeypatch.setattr("msaccel.data.download.fetch.locate", lambda *given: source)
    before = set(tmp_path.iterdir())
    assert main(["data", "cifar10-jpeg", "--output", str(tmp_path / "jpeg")]) == 2
    assert "holds no records" in capsys.readouterr().err and set(tmp_path.iterdir()) == before


def test_check_names_every_fault(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    root = make_tree(tmp_path / "tree")
    command = ["data", "check", "--root", str(root), "--cache", str(tmp_path / "cache")]
    assert main(command) == 0
    assert capsys.readouterr().out == "15 images in 3 classes; problems: 0\n9 images in 3 classes; problems: 0\n"
    (root / "train" / "ant" / "1.JPEG").write_bytes(jpeg(1)[:300])
    (root / "train" / "ant" / "notes\n.txt").write_text("about")
    os.mkfifo(root / "val" / "bee" / "pipe.png")
    assert main(command) == 1
    lines = capsys.readouterr().out.splitlines()
    assert (
        lines[0].startswith("'train/ant/notes\\n.txt' is no image")
        and lines[3] == "val/bee/pipe.png is no regular file"
    )
    assert lines[1].startswith("train/ant/1.JPEG cannot be decoded (")
    assert lines[2] == "14 images in 3 classes; problems: 2" and lines[4] == "9 images in 3 classes; problems: 1"


@pytest.mark.parametrize(
    ("arguments", "phrase"),
    [
        (["check", "--root", "/no/such"], "data.root=/no/such has no folder train"),
        (["cifar10-jpeg", "--output", "/"], "/ exists"),
        (["cifar10-jpeg", "--output", "a" * 300], "cannot be written (File name too long): give another --output"),
        (["to-mindrecord", "--root", "/no/such", "--output", "x"], "is no folder"),
    ],
)
def test_what_cannot_be_done_is_one_sentence(
    arguments: list[str], phrase: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("msaccel.data.download.fetch.locate", lambda *given: Path("/no/such"))
    assert main(["data", *arguments]) == 2
    said = capsys.readouterr().err
    assert phrase in said and len(said.splitlines()) == 1
