"""Snapshots: when they are due, that they come back in order, and that nothing else passes for one."""

from __future__ import annotations

import json
import os
import pickle
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from safetensors.numpy import load_file, save_file

from msaccel.accel.dimreduce import snapshots, tensor_files
from msaccel.accel.dimreduce.layout import Layout
from msaccel.errors import CheckpointError, CombinationError

LAYOUT = Layout(("weight", "bias", "scale"), ((3, 4), (5,), ()))


def weights(seed: int = 0) -> list[np.ndarray]:
    draw = np.random.default_rng(seed).standard_normal
    return [np.asarray(draw(shape), np.float32) for shape in LAYOUT.shapes]


def write(folder: Path, *updates: int, keep: int = 9) -> list[Path]:
    return [snapshots.write(folder, LAYOUT, weights(update), update, keep) for update in updates]


@given(st.integers(1, 10**7), st.integers(1, 200))
def test_due(updates: int, count: int) -> None:
    half = (updates + 1) // 2
    if half < count:
        with pytest.raises(CombinationError, match=r"accel\.dimreduce\.snapshot\.count.*train\.epochs"):
            snapshots.due(updates, count)
        return
    due = snapshots.due(updates, count)
    gaps = np.diff([updates // 2, *due])
    assert len(due) == count and due[-1] == updates
    assert gaps.min() >= 1 and gaps.max() - gaps.min() <= 1
    assert due[0] > updates // 2


def test_due_at_fractions_of_an_epoch() -> None:
    assert snapshots.due(20, 4) == [12, 15, 17, 20]
    assert snapshots.due(7, 4) == [4, 5, 6, 7]


def test_a_snapshot_comes_back(tmp_path: Path) -> None:
    (path,) = write(tmp_path / "new" / "folder", 7)
    (snapshot,) = snapshots.find(path.parent, LAYOUT)
    assert snapshot.update == 7 and snapshot.layout == LAYOUT
    for name, value in zip(LAYOUT.names, weights(7), strict=True):
        np.testing.assert_array_equal(load_file(path)[name], value, strict=True)
    snapshots.verify(snapshot)


def test_the_data_are_the_flat_vector(tmp_path: Path) -> None:
    (path,) = write(tmp_path, 7)
    (snapshot,) = snapshots.find(tmp_path, LAYOUT)
    assert path.read_bytes()[snapshot.start :] == LAYOUT.flatten(weights(7)).tobytes()
    assert snapshot.start % 8 == 0


def test_statistics_come_behind_the_flat_vector_and_are_checked(tmp_path: Path) -> None:
    mean = np.arange(3, dtype=np.float32)
    path = snapshots.write(tmp_path, LAYOUT, weights(7), 7, 1, {"norm.mean": mean})
    (snapshot,) = snapshots.find(tmp_path, LAYOUT)
    assert path.read_bytes()[snapshot.start :] == LAYOUT.flatten(weights(7)).tobytes() + mean.tobytes()
    assert snapshot.layout == LAYOUT and load_file(path)["norm.mean"].tolist() == [0, 1, 2]
    path.write_bytes(path.read_bytes()[:-4] + b"\0\0\0\0")
    with pytest.raises(CheckpointError, match="not those it was written with"):
        snapshots.verify(snapshot)


def test_the_bytes_depend_on_the_weights_only(tmp_path: Path) -> None:
    (one,), (two,) = write(tmp_path / "a", 7), write(tmp_path / "b", 7)
    assert one.read_bytes() == two.read_bytes()


def test_weights_that_are_not_contiguous(tmp_path: Path) -> None:
    matrix = np.arange(12, dtype=np.float32).reshape(4, 3).T
    path = snapshots.write(tmp_path, LAYOUT, [matrix, *weights()[1:]], 1, 1)
    np.testing.assert_array_equal(load_file(path)["weight"], matrix)
    snapshots.verify(snapshots.opened(path))


def test_other_weights_are_not_written(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="float32"):
        snapshots.write(tmp_path, LAYOUT, weights()[:2], 1, 1)
    assert not os.listdir(tmp_path)


def test_the_order_is_that_of_the_updates(tmp_path: Path) -> None:
    for position, update in enumerate([100000, 9, 11, 2]):
        (path,) = write(tmp_path / "written", update)
        (tmp_path / "given").mkdir(exist_ok=True)
        path.rename(tmp_path / "given" / f"{position}.safetensors")
    assert [snapshot.update for snapshot in snapshots.find(tmp_path / "given", LAYOUT)] == [2, 9, 11, 100000]


def test_the_oldest_are_removed(tmp_path: Path) -> None:
    write(tmp_path, 8, 9, 10, 1000000, keep=3)
    assert [snapshot.update for snapshot in snapshots.find(tmp_path, LAYOUT)] == [9, 10, 1000000]


def test_other_files_stay_and_do_not_count(tmp_path: Path) -> None:
    (tmp_path / "update-1.safetensors.part").write_text("left by a job that died")
    (tmp_path / "notes.txt").write_text("mine")
    write(tmp_path, 1, 2, keep=1)
    assert sorted(os.listdir(tmp_path)) == ["notes.txt", "update-0000000002.safetensors", "update-1.safetensors.part"]
    assert len(snapshots.find(tmp_path, LAYOUT)) == 1


@pytest.mark.parametrize("call", ["replace", "fsync"])
def test_an_interrupted_write_leaves_what_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str) -> None:
    (path,) = write(tmp_path, 7)
    before = path.read_bytes()

    def fail(*arguments: object) -> None:
        raise OSError("No space left on device")

    monkeypatch.setattr(os, call, fail)
    with pytest.raises(OSError, match="No space left"):
        snapshots.write(tmp_path, LAYOUT, weights(1), 7, 1)
    assert os.listdir(tmp_path) == [path.name] and path.read_bytes() == before


def test_the_bytes_are_safe_before_the_name_changes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = []
    for name in ("fsync", "replace"):
        real = getattr(os, name)
        monkeypatch.setattr(os, name, lambda *a, name=name, real=real: (calls.append(name), real(*a)))
    write(tmp_path, 7)
    assert calls == ["fsync", "replace"]


class Trap:
    """What unpickling would run."""

    def __reduce__(self) -> tuple[object, tuple[str]]:
        return os.system, ("touch trap-was-sprung",)


def header_length(length: int):
    return lambda path: path.write_bytes(length.to_bytes(8, "little") + path.read_bytes()[8:])


def cut(share: float):
    return lambda path: path.write_bytes(path.read_bytes()[: int(share * path.stat().st_size)])


def metadata(**changes: object):
    """The file with other facts in its metadata entry."""

    def rewrite(path: Path) -> None:
        contents = tensor_files.read(path, snapshots.KIND)
        tensor_files.write(
            path, dict(zip(LAYOUT.names, weights(), strict=True)), snapshots.KIND, contents.facts | changes
        )

    return rewrite


def entry(name: str, text: str):
    return lambda path: save_file({"weight": np.zeros(3, np.float32)}, path, {name: text})


def numpy(array: np.ndarray):
    def save(path: Path) -> None:
        with path.open("wb") as file:
            np.save(file, array)

    return save


DAMAGE = {
    "empty": cut(0),
    "cut in the length": cut(0.01),
    "cut in the header": cut(0.3),
    "cut in the data": cut(0.99),
    "too long": lambda path: path.write_bytes(path.read_bytes() + b"\0" * 4),
    "folder": lambda path: (path.unlink(), path.mkdir()),
    "dangling link": lambda path: (path.unlink(), path.symlink_to("nowhere")),
    "text": lambda path: path.write_text("a page that says 404\n"),
    "numpy": numpy(np.zeros(30)),
    "pickle": lambda path: path.write_bytes(pickle.dumps(Trap())),
    "header of no length": header_length(0),
    "header beyond the file": header_length(10**7),
    "header of 2^63 bytes": header_length(2**63),
    "header of 2^64 - 1 bytes": header_length(2**64 - 1),
    "no metadata": lambda path: save_file({"weight": np.zeros(3, np.float32)}, path),
    "another's metadata": entry("format", "pt"),
    "metadata no JSON": entry(snapshots.KIND.mark, "{"),
    "metadata a list": entry(snapshots.KIND.mark, "[1]"),
    "metadata nested deep": entry(snapshots.KIND.mark, "[" * 100000),
    "nothing known": entry(snapshots.KIND.mark, "{}"),
    "update a text": metadata(update="7"),
    "update negative": metadata(update=-7),
    "update true": metadata(update=True),
    "digest a number": metadata(sha256=7),
    "layout of fewer": metadata(layout=LAYOUT.entries()[:2]),
    "layout in another order": metadata(layout=LAYOUT.entries()[::-1]),
    "layout of other shapes": metadata(layout=[["weight", [4, 3]], ["bias", [5]], ["scale", []]]),
    "layout a number": metadata(layout=3),
    "float64": lambda path: save_file(
        {"weight": np.zeros(3)},
        path,
        {snapshots.KIND.mark: json.dumps({"update": 1, "sha256": "", "layout": [["weight", [3]]]})},
    ),
}


def assert_refused(folder: Path, *words: str, layout: Layout = LAYOUT) -> None:
    with pytest.raises(CheckpointError) as error:
        snapshots.find(folder, layout)
    message = str(error.value)
    assert "\n" not in message and message.endswith("accel.dimreduce.snapshots (or from_run).")
    assert all(word in message for word in words), message


@pytest.mark.parametrize("damage", DAMAGE.values(), ids=DAMAGE.keys())
def test_what_is_no_snapshot_is_refused(tmp_path: Path, damage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    _, path = write(tmp_path, 1, 2)
    damage(path)
    assert_refused(tmp_path, path.name)
    assert not (tmp_path / "trap-was-sprung").exists()


@pytest.mark.parametrize("folder", ["empty", "missing"])
def test_no_snapshots(tmp_path: Path, folder: str) -> None:
    (tmp_path / "empty").mkdir()
    assert_refused(tmp_path / folder, folder, "no snapshots")


@pytest.mark.parametrize(
    "other",
    [
        Layout(("weight", "beta", "scale"), LAYOUT.shapes),
        Layout(("bias", "weight", "scale"), ((5,), (3, 4), ())),
        Layout(LAYOUT.names, ((4, 3), (5,), ())),
    ],
    ids=["names", "order", "shapes"],
)
def test_snapshots_of_another_network(tmp_path: Path, other: Layout) -> None:
    write(tmp_path, 1)
    assert_refused(tmp_path, "should", layout=other)
    snapshots.write(tmp_path, other, [np.zeros(shape, np.float32) for shape in other.shapes], 2, 9)
    assert_refused(tmp_path, "should")


def test_two_of_one_update(tmp_path: Path) -> None:
    (path,) = write(tmp_path, 7)
    (tmp_path / "copy.safetensors").write_bytes(path.read_bytes())
    assert_refused(tmp_path, "update 7")


def test_a_changed_bit_is_noticed(tmp_path: Path) -> None:
    (path,) = write(tmp_path, 7)
    content = bytearray(path.read_bytes())
    content[-2] ^= 1
    path.write_bytes(content)
    with pytest.raises(CheckpointError, match=r"accel\.dimreduce\.snapshots"):
        snapshots.verify(snapshots.opened(path))


@pytest.mark.parametrize("width", [1, 5, 18, 100])
def test_blocks_of_columns(tmp_path: Path, width: int) -> None:
    write(tmp_path, 3, 1, 2)
    found = np.full((3, LAYOUT.size), np.nan)
    for span, block in snapshots.columns(snapshots.find(tmp_path, LAYOUT), width):
        assert block.dtype == np.float32 and block.shape[1] <= width
        found[:, span] = block
    np.testing.assert_array_equal(found, [LAYOUT.flatten(weights(update)) for update in (1, 2, 3)])


def test_a_file_that_shrinks_while_it_is_read(tmp_path: Path) -> None:
    write(tmp_path, 1, 2)
    found = snapshots.find(tmp_path, LAYOUT)
    cut(0.9)(found[1].path)
    with pytest.raises(CheckpointError, match="ends early"):
        list(snapshots.columns(found, 4))
