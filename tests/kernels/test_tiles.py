"""Convolutions in bfloat16 as they are computed with AMX: images with their channels last, small ones side by side."""

from collections.abc import Iterator

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from msaccel.kernels import Products, processor
from msaccel.kernels.conv_shape import Geometry
from tests.kernels import operators, reference
from tests.kernels.operators import blocks
from tests.kernels.test_bf16 import ULP, assert_close, convolved, narrow, rounded, wide
from tests.kernels.test_native_conv import problems, tensors

pytestmark = pytest.mark.skipif(not processor.has_bf16(), reason="this processor cannot multiply in bfloat16")


@pytest.fixture(scope="module", autouse=True)
def tiles() -> Iterator[None]:
    with operators.multiplying_tiles(True):
        yield


def expected(geometry: Geometry, x, dy, weight, *bias) -> list[np.ndarray]:
    """y, dx, dweight and dbias in float64, of factors rounded to bfloat16."""
    x, dy, weight = map(rounded, (x, dy, weight))
    y = reference.forward(x, weight, geometry) + sum(np.asarray(b, float)[:, None, None] for b in bias)
    return [y, *reference.gradients(x, weight, dy, geometry), *[dy.sum((0, 2, 3)) for _ in bias]]


@settings(max_examples=60, deadline=None, derandomize=True)
@given(problem=problems())
@example(problem=(Geometry.square(3, 1, 1, 1, 1), (8, 64, 28, 28), 64, True, 0))  # on several threads
@example(problem=(Geometry.square(3, 1, 1, 1, 1), (26, 16, 4, 4), 32, True, 0))  # 13 side by side, twice
@example(problem=(Geometry.square(3, 2, 1, 1, 1), (29, 16, 7, 7), 8, False, 0))  # more than lie side by side, a prime
@example(problem=(Geometry.square(1, 2, 0, 1, 1), (8, 16, 5, 5), 8, False, 0))  # the last column is not seen
@example(problem=(Geometry.square(1, 1, 2, 1, 1), (4, 16, 3, 3), 8, False, 0))  # of more zeros than the kernel
@example(problem=(Geometry.square(1, 1, 0, 1, 1), (4, 19, 6, 5), 33, False, 0))  # a product of matrices of pixels
@example(problem=(Geometry((1, 1), (2, 3), (1, 1), (0,) * 4, 1), (4, 19, 20, 27), 33, False, 0))  # of every sixth pixel
@example(problem=(Geometry.square(1, 2, 0, 1, 1), (8, 64, 28, 28), 64, False, 0))  # of a quarter, on several threads
@example(problem=(Geometry.square(1, 2, 0, 1, 1), (8, 16, 8, 8), 8, False, 0))  # and these side by side
def test_plain_images(problem) -> None:
    geometry, arrays = tensors(problem, np.float32)
    wanted = expected(geometry, *arrays)
    for mine, theirs in zip(convolved(Products.BFLOAT16, geometry, *arrays), wanted, strict=True):
        assert mine.dtype == np.float32
        assert_close(mine, theirs)


@settings(max_examples=60, deadline=None, derandomize=True)
@given(
    shape=st.tuples(st.integers(1, 30), st.integers(1, 2), st.integers(1, 10), st.integers(1, 10)),
    out=st.integers(1, 3),
    kernel=st.integers(1, 4),
    stride=st.integers(1, 3),
    halves=st.tuples(st.booleans(), st.booleans()),
    in_blocks=st.tuples(st.booleans(), st.booleans()),
    seed=st.integers(0, 2**32),
)
@example((8, 2, 8, 6), 3, 1, 2, (True, True), (True, True), 0)  # a quarter of the pixels, side by side
@example((8, 2, 18, 20), 3, 1, 2, (True, False), (True, True), 0)
def test_images_in_blocks_and_in_bfloat16(shape, out: int, kernel: int, stride: int, halves, in_blocks, seed) -> None:
    """Each of x and y: in either layout, and if in blocks of either type."""
    n, into, height, width = shape
    geometry, draw = Geometry.square(kernel, stride, kernel // 2, 1, 1), np.random.default_rng(seed).standard_normal
    x = rounded(draw((n, 16 * into, height, width))).astype(np.float32)
    weight = draw((16 * out, 16 * into, kernel, kernel)).astype(np.float32)
    dy = rounded(draw((n, 16 * out, *geometry.out_size(height, width)))).astype(np.float32)

    def laid(tensor: np.ndarray, side: int) -> np.ndarray:
        if not in_blocks[side]:
            return tensor
        return narrow(blocks(tensor)) if halves[side] else blocks(tensor)

    found = convolved(Products.BFLOAT16, geometry, laid(x, 0), laid(dy, 1), weight)
    for mine, theirs in zip(found, expected(geometry, x, dy, weight), strict=True):
        half = mine.dtype == np.uint16
        assert_close(wide(mine) if half else mine, blocks(theirs) if mine.ndim == 5 else theirs, ULP / 2 if half else 0)


@pytest.mark.parametrize(
    ("side", "kernel", "stride", "plans"),
    [(8, 3, 1, 5), (9, 3, 1, 3), (9, 1, 1, 4), (18, 1, 2, 6), (17, 1, 2, 3)],
    ids=["side by side: two copies", "each image", "a product: a copy", "of some pixels: x, dx, y", "all pixels"],
)
def test_which_way(side: int, kernel: int, stride: int, plans: int) -> None:
    """By the number of oneDNN's primitives: three of the directions, and copies, which x and y share."""
    geometry, draw = Geometry.square(kernel, stride, kernel // 2, 1, 1), np.random.default_rng(0).standard_normal
    sizes = ((16, 16, side, side), (16, 16, *geometry.out_size(side, side)), (16, 16, kernel, kernel))
    x, dy, weight = (draw(size).astype(np.float32) for size in sizes)
    operators.forget_plans()
    first = convolved(Products.BFLOAT16, geometry, x, dy, weight)
    assert operators.plans() == plans
    for mine, before in zip(convolved(Products.BFLOAT16, geometry, x, dy, weight), first, strict=True):
        np.testing.assert_array_equal(mine, before)
