"""Winograd's 3 × 3 convolutions against their definition in float64 and against oneDNN."""

from collections.abc import Iterator

import numpy as np
import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from msaccel.kernels.conv_shape import Geometry
from msaccel.kernels.processor import block
from tests.kernels import operators, reference
from tests.kernels.operators import blocks
from tests.kernels.test_bf16 import ULP, WAYS, assert_close, convolved, narrow, rounded, wide

GEOMETRY = Geometry.square(3, 1, 1, 1, 1)


@pytest.fixture(scope="module", autouse=True)
def without_amx() -> Iterator[None]:
    """With it oneDNN multiplies rounded factors."""
    with operators.multiplying_tiles(False):
        yield


def problem(shape, out: int, seed: int, geometry: Geometry = GEOMETRY) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """x, weight and dy."""
    n, into, height, width = shape
    draw = np.random.default_rng(seed).standard_normal
    of_y = (n, 16 * out, *geometry.out_size(height, width))
    shapes = (n, 16 * into, height, width), (16 * out, 16 * into, 3, 3), of_y
    x, weight, dy = (draw(size).astype(np.float32) for size in shapes)
    return x, weight, dy


@settings(max_examples=60, deadline=None, derandomize=True)
@given(
    shape=st.tuples(st.integers(1, 9), st.integers(1, 4), st.integers(1, 17), st.integers(1, 17)),
    out=st.integers(1, 5),
    after=st.tuples(st.integers(0, 1), st.integers(0, 1)),
    sides=st.tuples(st.booleans(), st.booleans()),
    seed=st.integers(0, 2**32),
)
@example(shape=(2, 1, 16, 16), out=3, after=(1, 1), sides=(True, True), seed=0)
@example(shape=(9, 3, 13, 1), out=2, after=(1, 1), sides=(True, True), seed=0)  # tiles that are half outside
@example(shape=(4, 2, 15, 15), out=2, after=(0, 0), sides=(True, True), seed=0)
@example(shape=(5, 2, 8, 7), out=2, after=(0, 1), sides=(True, True), seed=0)
@example(shape=(5, 2, 8, 7), out=3, after=(1, 1), sides=(False, False), seed=0)
def test_values_and_gradients(shape, out: int, after: tuple[int, int], sides: tuple[bool, bool], seed: int) -> None:
    """With zeros on every side, or none at the bottom or the right, so that y has a row or column less than x."""
    assume(min(shape[2] + after[0], shape[3] + after[1]) >= 2)
    geometry = Geometry.square(3, 1, (1, after[0], 1, after[1]), 1, 1)
    x, weight, dy = problem(shape, out, seed, geometry)
    of_x, of_y = (blocks if in_blocks else np.ascontiguousarray for in_blocks in sides)
    found = operators.as_laid(of_x(x), weight, of_y(dy), geometry)
    y, (dx, dweight) = reference.forward(x, weight, geometry), reference.gradients(x, weight, dy, geometry)
    for ours, wanted in zip(found, (of_y(y), of_x(dx), dweight), strict=True):
        assert np.abs(ours - wanted).max() <= 3e-6 * np.abs(wanted).max()


@pytest.mark.slow
@pytest.mark.skipif(block() is None, reason="without AVX2 oneDNN computes both")
def test_as_exact_as_onednn() -> None:
    """The weight gradient sums 32,768 products over all pixels of the batch."""
    x, weight, dy = problem((32, 4, 32, 32), 4, 0)
    ours = operators.as_laid(blocks(x), weight, blocks(dy), GEOMETRY)
    wider = np.pad(x, [(0, 0), (0, 1), (0, 0), (0, 0)]), np.pad(weight, [(0, 0), (0, 1), (0, 0), (0, 0)])
    y, dx, dweight = operators.as_laid(*wider, dy, GEOMETRY)  # a channel of zeros is none of a block, so by oneDNN
    theirs = [y, dx[:, :-1], dweight[:, :-1]]
    y, (dx, dweight) = reference.forward(x, weight, GEOMETRY), reference.gradients(x, weight, dy, GEOMETRY)
    for mine, other, wanted in zip(ours, theirs, (y, dx, dweight), strict=True):
        off = [
            np.abs(found - laid).max()
            for found, laid in ((mine, blocks(wanted) if mine.ndim == 5 else wanted), (other, wanted))
        ]
        assert off[0] <= 2 * off[1]


@pytest.mark.parametrize(
    ("shape", "out", "padding", "onednns"),
    [
        ((4, 2, 9, 9), 2, (1, 1, 1, 1), 0),
        ((4, 2, 9, 9), 2, (1, 0, 1, 0), 0),
        ((4, 2, 9, 9), 2, (0, 1, 0, 1), 3),
        ((1, 2, 5, 5), 2, (1, 1, 1, 1), 2),
    ],
    ids=["many tiles", "a row less", "another row less", "few tiles, for which only the weight gradient pays"],
)
def test_where_it_computes(shape, out: int, padding: tuple[int, int, int, int], onednns: int) -> None:
    """Without AVX2 oneDNN computes all three directions, with a plan for each."""
    operators.forget_plans()
    geometry = Geometry.square(3, 1, padding, 1, 1)
    x, weight, dy = problem(shape, out, 0, geometry)
    operators.as_laid(blocks(x), weight, blocks(dy), geometry)
    assert operators.plans() == (onednns if block() else 3)


B = np.array([[1, 0, -1, 0], [0, 1, 1, 0], [0, -1, 1, 0], [0, 1, 0, -1]]).T
G = np.array([[1, 0, 0], [0.5, 0.5, 0.5], [0.5, -0.5, 0.5], [0, 0, 1]])
A = np.array([[1, 1, 1, 0], [0, 1, -1, -1]]).T


def tiles(images: np.ndarray, side: int) -> np.ndarray:
    """(n, c, h, w) as (n, c, h', w', side, side): the pixels around each tile of 2 × 2, zeros outside."""
    before = (side - 2) // 2
    sides = [(before, before + size % 2) for size in images.shape[2:]]
    whole = np.pad(images, [(0, 0), (0, 0), *sides])
    return np.lib.stride_tricks.sliding_window_view(whole, (side, side), (2, 3))[:, :, ::2, ::2]


def transformed_forward(x: np.ndarray, weight: np.ndarray) -> np.ndarray:
    """y with zeros on every side, by products of rounded transforms in float64."""
    images, kernels = rounded(B.T @ tiles(x, 4) @ B), rounded(G @ weight @ G.T)
    y = A.T @ np.einsum("nchwij,ocij->nohwij", images, kernels, optimize=True) @ A
    n, o, height, width = y.shape[:4]
    return y.transpose(0, 1, 2, 4, 3, 5).reshape(n, o, 2 * height, 2 * width)[..., : x.shape[2], : x.shape[3]]


def transformed_weight_gradient(x: np.ndarray, dy: np.ndarray) -> np.ndarray:
    images, gradients = rounded(B.T @ tiles(x, 4) @ B), rounded(A @ tiles(dy, 2) @ A.T)
    return G.T @ np.einsum("nchwij,nohwij->ocij", images, gradients, optimize=True) @ G


@pytest.mark.skipif(block() is None, reason="without AVX2 oneDNN computes all")
@pytest.mark.parametrize("products", WAYS)
@pytest.mark.parametrize("of_x", [np.asarray, narrow], ids=["x in float32", "x in bfloat16"])
@pytest.mark.parametrize("of_y", [np.asarray, narrow], ids=["y in float32", "y in bfloat16"])
@pytest.mark.parametrize(("shape", "out"), [((2, 2, 8, 8), 2), ((4, 2, 5, 8), 2), ((2, 2, 8, 9), 3), ((8, 3, 4, 4), 2)])
def test_transforms_are_rounded_to_bfloat16(products: int, of_x, of_y, shape, out: int) -> None:
    """Of a weight of few digits, whose transforms come to the same before they are rounded.

    All are small enough for one thread: with many, few tiles are left to oneDNN.
    """
    x, weight, dy = (rounded(tensor).astype(np.float32) for tensor in problem(shape, out, 0))
    y, dx, dweight = convolved(products, GEOMETRY, of_x(blocks(x)), of_y(blocks(dy)), weight)
    turned = weight.swapaxes(0, 1)[..., ::-1, ::-1]
    for found, wanted in ((y, transformed_forward(x, weight)), (dx, transformed_forward(dy, turned))):
        half = found.dtype == np.uint16
        assert_close(wide(found) if half else found, blocks(wanted), ULP / 2 if half else 0)
    assert_close(dweight, transformed_weight_gradient(x, dy))


@pytest.mark.parametrize("products", WAYS)
def test_in_bfloat16_the_error_is_less_than_twice_that_of_rounded_factors(products: int) -> None:
    x, weight, dy = problem((8, 4, 16, 16), 4, 0)
    found = convolved(products, GEOMETRY, blocks(x), blocks(dy), weight)
    exact = [reference.forward(x, weight, GEOMETRY), *reference.gradients(x, weight, dy, GEOMETRY)]
    x, weight, dy = map(rounded, (x, weight, dy))
    direct = [reference.forward(x, weight, GEOMETRY), *reference.gradients(x, weight, dy, GEOMETRY)]
    for mine, theirs, wanted in zip(found, direct, exact, strict=True):
        laid = blocks(wanted) if mine.ndim == 5 else wanted
        assert np.sqrt(np.mean((mine - laid) ** 2)) < 2 * np.sqrt(np.mean((theirs - wanted) ** 2))


@pytest.mark.parametrize("products", WAYS)
def test_an_odd_number_of_tiles_has_its_weight_gradient_from_onednn(products: int) -> None:
    """In bfloat16 two tiles' factors are multiplied at once."""
    x, weight, dy = (rounded(tensor).astype(np.float32) for tensor in problem((3, 2, 9, 14), 2, 0))
    dweight = convolved(products, GEOMETRY, blocks(x), blocks(dy), weight)[2]
    assert_close(dweight, reference.gradients(x, weight, dy, GEOMETRY)[1])
