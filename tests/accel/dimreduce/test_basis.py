"""P's file comes back whole or is refused, and ranks share its rows."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from safetensors.numpy import load_file

from msaccel.accel.dimreduce import tensor_files
from msaccel.accel.dimreduce.basis import KIND, Basis, load, rows
from msaccel.accel.dimreduce.layout import Layout
from msaccel.errors import CheckpointError

LAYOUT = Layout(("weight", "bias"), ((2, 4), (3,)))


def make(seed: int = 0) -> Basis:
    draw = np.random.default_rng(seed).standard_normal
    matrix = np.linalg.qr(draw((11, 3)))[0].T.astype(np.float32)
    return Basis(matrix, (0.3, 0.1, 1 / 3), 0.75, 5, LAYOUT, ("aa", "bb", "cc", "dd"))


@pytest.fixture
def file(tmp_path: Path) -> Path:
    make().save(tmp_path / "pca.safetensors")
    return tmp_path / "pca.safetensors"


def test_round_trip(file: Path) -> None:
    found, expected = load(file, LAYOUT, 3), make()
    np.testing.assert_array_equal(found.matrix, expected.matrix)
    assert replace(found, matrix=expected.matrix) == expected


def test_any_reader_of_safetensors_finds_it(file: Path) -> None:
    np.testing.assert_array_equal(load_file(file)["components"], make().matrix)


def test_the_same_bytes_twice(file: Path) -> None:
    before = file.read_bytes()
    make().save(file)
    assert file.read_bytes() == before and os.listdir(file.parent) == [file.name]


def test_explained_variance() -> None:
    assert make().explained == pytest.approx((0.3 + 0.1 + 1 / 3) / 0.75)


def assert_refused(path: Path, layout: Layout, components: int) -> str:
    with pytest.raises(CheckpointError) as error:
        load(path, layout, components)
    message = str(error.value)
    assert "\n" not in message and message.endswith("accel.dimreduce.pca.path.") and str(path) in message
    return message


MISMATCHES = {
    "names": (Layout(("weight", "beta"), ((2, 4), (3,))), 3, "beta"),
    "order": (Layout(("bias", "weight"), ((3,), (2, 4))), 3, "weight stands where bias"),
    "shapes": (Layout(("weight", "bias"), ((4, 2), (3,))), 3, "(4, 2)"),
    "M": (Layout(("weight", "bias"), ((2, 4), (5,))), 3, "(5,)"),
    "fewer components": (LAYOUT, 2, "accel.dimreduce.components=2"),
    "more components": (LAYOUT, 4, "accel.dimreduce.components=4"),
}


@pytest.mark.parametrize(("layout", "components", "words"), MISMATCHES.values(), ids=MISMATCHES.keys())
def test_a_matrix_of_something_else(file: Path, layout: Layout, components: int, words: str) -> None:
    assert words in assert_refused(file, layout, components)


def cut(share: float):
    return lambda path: path.write_bytes(path.read_bytes()[: int(share * path.stat().st_size)])


def facts(**changes: object):
    def rewrite(path: Path) -> None:
        tensor_files.write(path, {"components": make().matrix}, KIND, tensor_files.read(path, KIND).facts | changes)

    return rewrite


def numpy(array: np.ndarray):
    def save(path: Path) -> None:
        with path.open("wb") as file:
            np.save(file, array)

    return save


DAMAGE = {
    "missing": os.remove,
    "empty": cut(0),
    "cut in the header": cut(0.3),
    "cut in the data": cut(0.99),
    "a header beyond the file": lambda path: path.write_bytes((2**40).to_bytes(8, "little") + path.read_bytes()[8:]),
    "numpy": numpy(make().matrix),
    "pickled numpy": numpy(np.array([{}], object)),
    "another kind": lambda path: tensor_files.write(
        path, {"components": make().matrix}, tensor_files.Kind("x-1", "x", "x"), {}
    ),
    "no facts": lambda path: tensor_files.write(path, {"components": make().matrix}, KIND, {}),
    "fewer variances": facts(variance=[1.0]),
    "variance a text": facts(variance="abc"),
    "rank a list": facts(rank=[3]),
    "layout a number": facts(layout=3),
    "another tensor": lambda path: tensor_files.write(
        path, {"P": make().matrix}, KIND, tensor_files.read(path, KIND).facts
    ),
    "one tensor more": lambda path: tensor_files.write(
        path, {"components": make().matrix, "x": np.zeros(1, np.float32)}, KIND, tensor_files.read(path, KIND).facts
    ),
}


@pytest.mark.parametrize("damage", DAMAGE.values(), ids=DAMAGE.keys())
def test_a_damaged_file_is_refused(file: Path, damage) -> None:
    damage(file)
    assert_refused(file, LAYOUT, 3)


@given(st.integers(1, 100), st.integers(1, 40))
def test_rows_are_shared_out(components: int, ranks: int) -> None:
    shares = [range(components)[rows(rank, ranks, components)] for rank in range(ranks)]
    assert [row for share in shares for row in share] == list(range(components))
    assert max(map(len, shares)) - min(map(len, shares)) <= 1
