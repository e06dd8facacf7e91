"""The flat vector and the parameters say the same, and layouts that differ are told apart."""

import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from msaccel.accel.dimreduce.layout import Layout, spans

SHAPES = st.lists(st.lists(st.integers(1, 4), max_size=4).map(tuple), min_size=1, max_size=6)
LAYOUT = Layout(("conv", "bias"), ((2, 3), (4,)))


def arrays_of(shapes: list[tuple[int, ...]]) -> list[np.ndarray]:
    draw = np.random.default_rng(0).standard_normal
    return [np.asarray(draw(shape), np.float32) for shape in shapes]


@given(SHAPES)
def test_there_and_back(shapes: list[tuple[int, ...]]) -> None:
    layout = Layout(tuple(f"p{index}" for index in range(len(shapes))), tuple(shapes))
    arrays = arrays_of(shapes)
    flat = layout.flatten(arrays)
    assert flat.shape == (layout.size,) and flat.dtype == np.float32
    for array, back in zip(arrays, np.split(flat, np.cumsum(layout.sizes)[:-1]), strict=True):
        np.testing.assert_array_equal(array, back.reshape(array.shape), strict=True)
    assert Layout.from_entries(layout.entries()) == layout


def test_the_order_is_that_of_the_parameters() -> None:
    weight, bias = np.arange(6, dtype=np.float32).reshape(2, 3), np.full(4, 9, np.float32)
    np.testing.assert_array_equal(LAYOUT.flatten([weight, bias]), [0, 1, 2, 3, 4, 5, 9, 9, 9, 9])


def test_a_transposed_array_is_flattened_by_rows() -> None:
    transposed = np.arange(6, dtype=np.float32).reshape(3, 2).T
    np.testing.assert_array_equal(Layout(("w",), ((2, 3),)).flatten([transposed]), [0, 2, 4, 1, 3, 5])


@pytest.mark.parametrize(
    "arrays",
    [
        arrays_of([(2, 3)]),
        arrays_of([(3, 2), (4,)]),
        arrays_of([(4,), (2, 3)]),
        [array.astype(np.float64) for array in arrays_of([(2, 3), (4,)])],
    ],
    ids=["too few", "transposed", "another order", "float64"],
)
def test_other_arrays_are_refused(arrays: list[np.ndarray]) -> None:
    with pytest.raises(ValueError, match="float32"):
        LAYOUT.flatten(arrays)


OTHERS = {
    "name": (Layout(("conv", "beta"), ((2, 3), (4,))), "beta stands where bias should"),
    "order": (Layout(("bias", "conv"), ((4,), (2, 3))), "bias stands where conv should"),
    "shape": (Layout(("conv", "bias"), ((3, 2), (4,))), r"conv has the shape (3, 2) and should have (2, 3)"),
    "fewer": (Layout(("conv",), ((2, 3),)), "it has 1 parameters and should have 2"),
    "more": (Layout(("conv", "bias", "x"), ((2, 3), (4,), ())), "it has 3 parameters and should have 2"),
}


@pytest.mark.parametrize(("other", "words"), OTHERS.values(), ids=OTHERS.keys())
def test_layouts_that_differ(other: Layout, words: str) -> None:
    assert LAYOUT.difference(other) == words


def test_a_layout_does_not_differ_from_itself() -> None:
    again = Layout(("conv", "bias"), ((2, 3), (4,)))
    assert LAYOUT.difference(again) == ""


@pytest.mark.parametrize("shapes", [((2,),), ((2,), (0,)), ((2,), (-1,))], ids=["too few", "empty", "negative"])
def test_impossible_shapes(shapes: tuple[tuple[int, ...], ...]) -> None:
    with pytest.raises(ValueError, match=r"shapes"):
        Layout(("a", "b"), shapes)


def test_names_must_differ() -> None:
    with pytest.raises(ValueError, match="different names"):
        Layout(("a", "a"), ((1,), (1,)))
    with pytest.raises(ValueError, match="must hold numbers"):
        Layout((), ())


@pytest.mark.parametrize(
    "entries",
    [None, [], 3, "ab", {"a": 1}, [["a"]], [["a", 3]], [["a", [-1]]], [["a", [True]]], [[1, [2]]], [["a", "b"]]],
)
def test_entries_that_are_no_layout(entries: object) -> None:
    with pytest.raises((TypeError, ValueError)):
        Layout.from_entries(entries)


@given(st.integers(0, 100), st.integers(1, 30))
def test_spans_cover_all_once(length: int, width: int) -> None:
    assert [index for span in spans(length, width) for index in range(length)[span]] == list(range(length))


def test_mindspore_is_not_needed() -> None:
    """Nor by any method's own account of itself, which the process that launches jobs reads."""
    modules = ("pca", "snapshots", "projection", "quasi_newton")
    code = "import sys, msaccel.accel; msaccel.accel.methods(); "
    code += "; ".join(f"import msaccel.accel.dimreduce.{name}" for name in modules)
    subprocess.run([sys.executable, "-c", code + "; sys.exit('mindspore' in sys.modules)"], check=True)
