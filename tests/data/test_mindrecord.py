"""MindRecord: what was a folder comes back picture for picture, at random; MindSpore reads it; damage is refused."""

import json
import os
import shlex
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from mindspore.mindrecord import FileReader
from PIL import Image

from msaccel.__main__ import main
from msaccel.data.dataset import DatasetSplits
from msaccel.data.image_folder import mindrecord
from msaccel.data.image_folder.listing import list_splits
from msaccel.data.load import load_datasets
from msaccel.data.sets.imagenet import ImageFolderSettings
from msaccel.errors import DataError
from tests.running import ROOT

from .conftest import assert_one_sentence
from .test_image_folder import SETTINGS, SHAPE, jpeg, make_tree


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> tuple[ImageFolderSettings, ImageFolderSettings]:
    """The settings of a folder, and of the same as MindRecord, which the command has written."""
    base = tmp_path_factory.mktemp("both")
    root, records = make_tree(base / "tree"), base / "records"
    (root / "train" / "cow" / 'a b, "c" é.png').write_bytes(jpeg(9, (60, 50), "PNG"))
    (root / "DATASET").write_text("tiny\n")
    given = ["--root", str(root), "--output", str(records), "--cache", str(base / "cache")]
    assert main(["data", "to-mindrecord", *given]) == 0
    settings = replace(SETTINGS, root=str(root))
    return settings, replace(settings, root=str(records), format="mindrecord")


@pytest.fixture(scope="module")
def loaded(both: tuple[ImageFolderSettings, ImageFolderSettings]) -> tuple[DatasetSplits, DatasetSplits]:
    return load_datasets(both[0], 0, SHAPE), load_datasets(both[1], 0, SHAPE)


def test_names_labels_and_classes_come_back(loaded: tuple[DatasetSplits, DatasetSplits]) -> None:
    before, after = loaded
    assert (after.name, after.classes, len(after.train), len(after.test)) == ("tiny", 3, 16, 9)
    for split in ("train", "test"):
        np.testing.assert_array_equal(getattr(before, split).labels, getattr(after, split).labels)


@hypothesis_settings(deadline=None, max_examples=20)
@given(chosen=st.lists(st.integers(0, 15), min_size=1, max_size=8), epoch=st.none() | st.integers(0, 3))
def test_any_batch_is_the_same_from_both(
    loaded: tuple[DatasetSplits, DatasetSplits], chosen: list[int], epoch: int | None
) -> None:
    before, after = (data.train.batch(np.array(chosen), epoch) for data in loaded)
    for one, other in zip(before, after, strict=True):
        np.testing.assert_array_equal(one, other)


def test_files_are_kept_as_they_were(loaded: tuple[DatasetSplits, DatasetSplits]) -> None:
    before, after = (data.train.source for data in loaded)  # type: ignore[attr-defined]
    assert all(before.read(number) == after.read(number) for number in range(16))


def test_mindspore_reads_the_same(both: tuple[ImageFolderSettings, ImageFolderSettings]) -> None:
    listing, _ = list_splits(Path(both[0].root or ""))
    reader = FileReader(str(Path(both[1].root or "", "train.mindrecord")))
    rows = sorted(reader.get_next(), key=lambda row: int(row["number"]))
    reader.close()
    for number, row in enumerate(rows):
        assert (int(row["number"]), int(row["label"])) == (number, listing.labels[number])
        assert bytes(row["image"]) == listing.read(number)
    assert len(rows) == 16 and rows[0]["name"] == "train/ant/0.JPEG"


def test_many_pages(tmp_path: Path) -> None:
    """More than the 32 MB of one page; the places are counted from the page's beginning."""
    root = make_tree(tmp_path / "tree")
    rng = np.random.default_rng(0)
    for number in range(30):
        (root / "train" / "bee" / f"x{number:02}.jpg").write_bytes(rng.bytes(int(rng.integers(1, 3_000_000))))
    splits = list_splits(root)
    (tmp_path / "records").mkdir()
    mindrecord.write(splits, "large", tmp_path / "records")
    records = mindrecord.read(tmp_path / "records" / "train.mindrecord")
    assert len(records.labels) == 45 and records.places[:, 1].sum() > 34_000_000
    assert all(records.read(number) == splits[0].read(number) for number in range(45))


@pytest.mark.parametrize("name", ["train.mindrecord", "val.mindrecord.db"])
def test_a_missing_file_is_refused(tmp_path: Path, name: str) -> None:
    settings = converted(tmp_path)
    Path(settings.root or "", name).unlink()
    with pytest.raises(DataError) as error:
        load_datasets(settings, 0, SHAPE)
    assert_one_sentence(error, str(settings.root), "python -m msaccel data to-mindrecord")


@pytest.mark.parametrize("fault", ["cut off", "no header", "another version", "no index"])
def test_a_damaged_file_is_refused(tmp_path: Path, fault: str) -> None:
    settings = converted(tmp_path)
    file = Path(settings.root or "", "train.mindrecord")
    content = file.read_bytes()
    if fault == "no index":
        Path(f"{file}.db").write_bytes(b"no index" * 100)
    else:
        header = content[8 : 8 + int.from_bytes(content[:8], "little")]
        other = json.dumps(json.loads(header) | {"version": "9.0"}).encode()
        bodies = {
            "cut off": content[: len(header) + 2000],
            "no header": b"\xff" * 5000 + content[5000:],
            "another version": len(other).to_bytes(8, "little") + other + content[8 + len(other) :],
        }
        file.write_bytes(bodies[fault])
    with pytest.raises(DataError) as error:
        load_datasets(settings, 0, SHAPE)
    assert_one_sentence(error, str(file), "cannot be read", "write it again")


def test_a_damaged_picture_is_named(tmp_path: Path) -> None:
    settings = converted(tmp_path)
    train = load_datasets(settings, 0, SHAPE).train
    first = int(train.source.places[3, 0])  # type: ignore[attr-defined]
    with Path(settings.root or "", "train.mindrecord").open("r+b") as file:
        file.seek(first)
        file.write(bytes(200))
    with pytest.raises(DataError) as error:
        train.batch(np.arange(8), 0)
    assert_one_sentence(error, "image 3 in", "train.mindrecord cannot be decoded", "convert the images again")


def converted(folder_: Path) -> ImageFolderSettings:
    (folder_ / "records").mkdir()
    mindrecord.write(list_splits(make_tree(folder_ / "tree")), "tiny", folder_ / "records")
    return replace(SETTINGS, root=str(folder_ / "records"), format="mindrecord")


def test_others_may_read_what_was_written(both: tuple[ImageFolderSettings, ImageFolderSettings]) -> None:
    """As far as the umask allows: MindSpore gives them to their owner alone."""
    mask = os.umask(0)
    os.umask(mask)
    modes = {file.name: file.stat().st_mode & 0o777 for file in Path(both[1].root).iterdir()}
    assert len(modes) == 4 and set(modes.values()) == {0o666 & ~mask}


def test_what_mindrecord_cannot_take_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    root, output = make_tree(tmp_path / "tree"), tmp_path / "records"
    large = root / "train" / "ant" / "large.bmp"
    Image.new("RGB", (4000, 3000)).save(large)
    command = ["data", "to-mindrecord", "--root", str(root), "--output", str(output), "--cache", str(tmp_path)]
    assert main(command) == 2
    said = capsys.readouterr().err.strip().splitlines()[-1]
    assert (
        said.startswith(f"{large} has 36,000,054 bytes, and MindRecord takes at most 33,554,424")
        and not output.exists()
    )


def test_a_disk_that_is_full_is_one_sentence(tmp_path: Path) -> None:
    """A limit on the size of files stands for it."""
    root, output = make_tree(tmp_path / "tree"), tmp_path / "records"
    command = [sys.executable, "-m", "msaccel", "data", "to-mindrecord", f"--root={root}", f"--output={output}"]
    shell = f"trap '' XFSZ; ulimit -f 8; exec {shlex.join([*command, f'--cache={tmp_path}'])}"
    ended = subprocess.run(["bash", "-c", shell], capture_output=True, text=True, cwd=ROOT)
    assert ended.returncode == 2 and "Traceback" not in ended.stderr
    assert f"{output}.part/train.mindrecord cannot be written (" in ended.stderr.splitlines()[-1]
    assert not output.exists()


def test_broken_pictures_stop_a_conversion_or_are_left_out(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    root, output = make_tree(tmp_path / "tree"), tmp_path / "records"
    (root / "train" / "ant" / "1.JPEG").write_bytes(jpeg(1)[:300])
    command = ["data", "to-mindrecord", "--root", str(root), "--output", str(output), "--cache", str(tmp_path)]
    assert main(command) == 2
    assert "train/ant/1.JPEG cannot be decoded" in capsys.readouterr().err and not output.exists()
    assert main([*command, "--on-broken", "skip"]) == 0
    records = replace(SETTINGS, root=str(output), format="mindrecord")
    assert load_datasets(records, 0, SHAPE).train.labels.tolist() == [0] * 4 + [1] * 5 + [2] * 5
    assert main(command) == 2 and "exists: give --output" in capsys.readouterr().err
    assert sorted(path.name for path in tmp_path.iterdir()) == ["records", "scans", "tree"]
