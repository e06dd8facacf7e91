"""The idx reader returns what was written and refuses everything else before it allocates."""

import struct
import tracemalloc
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes, arrays
from numpy.typing import NDArray

from msaccel.data.idx import read_idx
from msaccel.errors import DataError

from .conftest import assert_one_sentence, to_idx

reuse_folder = settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
byte_arrays = arrays(np.uint8, array_shapes(min_dims=1, max_dims=3, max_side=6))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "some-images"


@reuse_folder
@given(array=byte_arrays)
def test_reads_what_was_written(path: Path, array: NDArray[np.uint8]) -> None:
    path.write_bytes(to_idx(array))
    read = read_idx(path, array.shape[1:])
    assert read.dtype == np.uint8 and read.flags.c_contiguous
    np.testing.assert_array_equal(read, array)


def test_reads_an_empty_set(path: Path) -> None:
    path.write_bytes(to_idx(np.zeros((0, 28, 28), np.uint8)))
    assert read_idx(path, (28, 28)).shape == (0, 28, 28)


@reuse_folder
@given(array=byte_arrays, data=st.data())
def test_refuses_every_truncation(path: Path, array: NDArray[np.uint8], data: st.DataObject) -> None:
    content = to_idx(array)
    path.write_bytes(content[: data.draw(st.integers(0, len(content) - 1))])
    with pytest.raises(DataError) as error:
        read_idx(path, array.shape[1:])
    assert_one_sentence(error, str(path))


@reuse_folder
@given(array=byte_arrays, extra=st.binary(min_size=1, max_size=9))
def test_refuses_every_surplus(path: Path, array: NDArray[np.uint8], extra: bytes) -> None:
    path.write_bytes(to_idx(array) + extra)
    with pytest.raises(DataError) as error:
        read_idx(path, array.shape[1:])
    assert_one_sentence(error, str(path), "announces")


@pytest.mark.parametrize("position", range(4))
def test_refuses_another_magic_number(path: Path, position: int) -> None:
    content = bytearray(to_idx(np.zeros((2, 3), np.uint8)))
    content[position] ^= 1
    path.write_bytes(content)
    with pytest.raises(DataError) as error:
        read_idx(path, (3,))
    assert_one_sentence(error, str(path), "no unzipped idx file")


@pytest.mark.parametrize("item_shape", [(), (3,), (2, 3), (3, 2, 1)])
def test_refuses_another_item_shape(path: Path, item_shape: tuple[int, ...]) -> None:
    path.write_bytes(to_idx(np.zeros((4, 3, 2), np.uint8)))
    with pytest.raises(DataError) as error:
        read_idx(path, item_shape)
    assert_one_sentence(error, str(path))


def test_a_header_cannot_ask_for_memory(path: Path) -> None:
    path.write_bytes(struct.pack(">4B3I", 0, 0, 8, 3, 2**32 - 1, 28, 28) + bytes(28 * 28))
    tracemalloc.start()
    with pytest.raises(DataError) as error:
        read_idx(path, (28, 28))
    assert tracemalloc.get_traced_memory()[1] < 1 << 20
    tracemalloc.stop()
    assert_one_sentence(error, str(path), "800 bytes", str(16 + (2**32 - 1) * 28 * 28))


def test_refuses_a_missing_file_and_a_folder(path: Path, tmp_path: Path) -> None:
    for place in (path, tmp_path):
        with pytest.raises(DataError) as error:
            read_idx(place, ())
        assert_one_sentence(error, str(place), "cannot be read")
