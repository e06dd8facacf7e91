"""Products in bfloat16 against float64 of rounded numbers, by the processor's instructions and emulated."""

import mindspore as ms
import numpy as np
import pytest
from hypothesis import example, given, settings
from mindspore import Tensor, nn

from msaccel import kernels
from msaccel.kernels import BatchProduct, Dense, Fork, Products, backend, processor
from msaccel.kernels.conv_shape import Geometry
from tests.kernels import operators, reference
from tests.kernels.operators import blocks, call
from tests.kernels.test_native_conv import problems, tensors

WAYS = [Products.EMULATED] + [Products.BFLOAT16] * processor.has_bf16()
SUMMED = 1e-5  # error of sums in float32, relative to the largest that could have come out
ULP = 2**-7  # of bfloat16, relative


def rounded(x: np.ndarray) -> np.ndarray:
    """To eight significant bits, ties to even; of normal numbers."""
    mantissa, exponent = np.frexp(np.asarray(x, float))
    return np.ldexp(np.rint(mantissa * 256) / 256, exponent)


def narrow(x: np.ndarray) -> np.ndarray:
    """Numbers that have eight significant bits, as bfloat16."""
    return (np.asarray(x, np.float32).view(np.uint32) >> 16).astype(np.uint16)


def wide(x: np.ndarray) -> np.ndarray:
    return (x.astype(np.uint32) << 16).view(np.float32)


def assert_close(found: np.ndarray, expected: np.ndarray, more: float = 0) -> None:
    assert np.all(np.abs(found - expected) <= SUMMED * max(1, np.abs(expected).max()) + more * np.abs(expected))


def convolved(products: int, geometry: Geometry, x, dy, weight, *bias) -> list[np.ndarray]:
    """y, dx, dweight and dbias."""
    numbers = operators.numbers(geometry, products)
    y, dx, dweight, *dbias = (np.zeros_like(tensor) for tensor in (dy, x, weight, *bias))
    call("convolution", x, weight, *bias, numbers, y)
    call("convolution_input_gradient", dy, weight, x, numbers, dx)
    call("convolution_weight_gradient", x, dy, weight, numbers, dweight, *dbias)
    return [y, dx, dweight, *dbias]


@pytest.mark.slow
@pytest.mark.parametrize("products", WAYS)
@settings(max_examples=60, deadline=None, derandomize=True)
@given(problem=problems())
@example(problem=(Geometry.square(3, 2, 1, 2, 48), (2, 48, 9, 7), 48, True, 0))  # depthwise
@example(problem=(Geometry.square(3, 1, 1, 1, 1), (8, 64, 28, 28), 64, True, 0))  # on several threads
def test_convolutions(products: int, problem) -> None:
    geometry, arrays = tensors(problem, np.float32)
    x, dy, weight = map(rounded, arrays[:3])
    y = reference.forward(x, weight, geometry) + sum(np.asarray(b, float)[:, None, None] for b in arrays[3:])
    expected = [y, *reference.gradients(x, weight, dy, geometry), *[dy.sum((0, 2, 3)) for _ in arrays[3:]]]
    found = convolved(products, geometry, *arrays)
    assert all(tensor.dtype == np.float32 for tensor in found)
    for mine, theirs in zip(found, expected, strict=True):
        assert_close(mine, theirs)


@pytest.mark.parametrize("products", WAYS)
@pytest.mark.parametrize(
    ("kernel", "stride", "into"), [(1, 1, 32), (1, 2, 32), (3, 1, 16), (3, 2, 32), (5, 1, 32), (7, 2, 32)]
)
def test_convolutions_of_blocks_in_bfloat16(products: int, kernel: int, stride: int, into: int) -> None:
    """Inputs and outputs are in bfloat16; the weight and its gradient are in float32.

    With more than 16 channels kernels of 3 × 3 with stride 1 are Winograd's, which are in a file of their own.
    """
    geometry, draw = Geometry.square(kernel, stride, kernel // 2, 1, 1), np.random.default_rng(0).standard_normal
    x, weight = rounded(draw((3, into, 9, 14))), draw((48, into, kernel, kernel)).astype(np.float32)
    dy = rounded(draw((3, 48, *geometry.out_size(9, 14))))
    y = reference.forward(x, rounded(weight), geometry)
    dx, dweight = reference.gradients(x, rounded(weight), dy, geometry)
    found = convolved(products, geometry, narrow(blocks(x)), narrow(blocks(dy)), weight)
    for mine, theirs in zip(found[:2], (y, dx), strict=True):
        assert mine.dtype == np.uint16
        assert_close(wide(mine), blocks(theirs), ULP / 2)
    assert found[2].dtype == np.float32
    assert_close(found[2], dweight)


@pytest.mark.parametrize("products", WAYS)
def test_the_stem_takes_float32_and_gives_bfloat16(products: int) -> None:
    geometry, draw = Geometry.square(3, 1, 1, 1, 1), np.random.default_rng(0).standard_normal
    x, weight = draw((4, 3, 10, 10)).astype(np.float32), draw((16, 3, 3, 3)).astype(np.float32)
    y = np.zeros((4, 16 // operators.SIZE, 10, 10, operators.SIZE), np.uint16)
    call("convolution", x, weight, operators.numbers(geometry, products), y)
    assert_close(wide(y), blocks(reference.forward(rounded(x), rounded(weight), geometry)), ULP / 2)


@pytest.mark.parametrize("products", WAYS)
def test_the_same_bits_twice_and_with_a_new_plan(products: int) -> None:
    geometry, arrays = tensors((Geometry.square(3, 1, 1, 1, 1), (4, 19, 23, 17), 33, True, 0), np.float32)
    first = convolved(products, geometry, *arrays)
    operators.forget_plans()
    for mine, before in zip(convolved(products, geometry, *arrays), first, strict=True):
        np.testing.assert_array_equal(mine, before)


SPECIAL = np.array([0, -0.0, np.inf, -np.inf, np.nan, 3e38, 3.4e38, -3.4e38, 1e-30], np.float32)


def test_every_bfloat16_and_what_lies_between_is_rounded_to_the_nearest() -> None:
    """Through a convolution with the weight 1, emulated: its output is the rounded input."""
    uppers = np.arange(2**16, dtype=np.uint32) << 16
    x = np.concatenate([uppers + lower for lower in (0, 1, 0x7FFF, 0x8000, 0x8001, 0xFFFF)]).view(np.float32)
    x = np.concatenate([x, SPECIAL, np.zeros(16 - len(SPECIAL), np.float32)]).reshape(1, 1, -1, 16)
    y, one = np.zeros(x.shape, np.uint16), np.ones((1, 1, 1, 1), np.float32)
    call("convolution", x, one, operators.numbers(Geometry.square(1, 1, 0, 1, 1), Products.EMULATED), y)
    number = np.isfinite(x) & (np.abs(x) > 1e-37) & (np.abs(x) < 3.38e38)
    np.testing.assert_array_equal(wide(y)[number], rounded(x[number]))
    np.testing.assert_array_equal(np.isnan(wide(y)), np.isnan(x))
    np.testing.assert_array_equal(wide(y)[np.isinf(x)], x[np.isinf(x)])
    assert np.all(np.isinf(wide(y)[np.abs(x) > 3.3962e38]))


@pytest.mark.parametrize("products", WAYS)
@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_what_is_not_finite_stays_so(products: int, value: float) -> None:
    x, weight = np.ones((1, 16, 5, 5), np.float32), np.ones((16, 16, 3, 3), np.float32)
    x[0, 3, 2, 2] = value
    geometry = Geometry.square(3, 1, 1, 1, 1)
    for mine in convolved(products, geometry, x, np.ones_like(x), weight)[::2]:
        assert not np.isfinite(mine).any(axis=None) or not np.isfinite(mine).all()
    y = convolved(products, geometry, x, np.ones_like(x), weight)[0]
    assert np.all(np.isnan(y[..., 1:4, 1:4]) if np.isnan(value) else y[..., 1:4, 1:4] == value)
    assert np.isfinite(y[..., 0, 0]).all()


@pytest.mark.parametrize("products", [Products.FLOAT32, *WAYS])
@pytest.mark.parametrize(("batch", "m", "n", "k"), [(1, 1, 1, 1), (3, 5, 7, 9), (8, 64, 32, 64), (2, 1, 33, 100)])
@pytest.mark.parametrize("flipped", ["", "a", "b", "ab"])
def test_products_of_matrices(products: int, batch: int, m: int, n: int, k: int, flipped: str) -> None:
    draw = np.random.default_rng(0).standard_normal
    a, b = draw((batch, m, k)).astype(np.float32), draw((batch, k, n)).astype(np.float32)
    of = rounded if products else np.asarray
    expected, c = of(a).astype(float) @ of(b), np.full((batch, m, n), np.nan, np.float32)
    laid = [np.ascontiguousarray(x.swapaxes(1, 2)) if name in flipped else x for name, x in (("a", a), ("b", b))]
    call("matrix_product", *laid, np.array(["a" in flipped, "b" in flipped, products], np.int32), c)
    assert_close(c, expected)


@pytest.mark.parametrize("products", WAYS)
@pytest.mark.parametrize("relu", [False, True])
@pytest.mark.parametrize(("rows", "inside", "out"), [(1, 1, 1), (5, 7, 3), (100, 130, 70)])
def test_dense_layers(products: int, relu: bool, rows: int, inside: int, out: int) -> None:
    draw = np.random.default_rng(0).standard_normal
    x, weight, bias, dy = (
        draw(shape).astype(np.float32) for shape in ((rows, inside), (out, inside), out, (rows, out))
    )
    y, dx, dweight, dbias = (np.full_like(tensor, np.nan) for tensor in (dy, x, weight, bias))
    behind = np.array([relu, products], np.int32)
    call("dense", x, weight, bias, behind, y)
    call("dense_input_gradient", dy, y, weight, x, behind, dx)
    call("dense_weight_gradient", dy, y, x, weight, behind, dweight, dbias)
    linear = rounded(x) @ rounded(weight).T + bias
    g = np.where(relu & (y <= 0), 0, dy)
    assert_close(y, np.maximum(linear, 0) if relu else linear)
    assert_close(dx, rounded(g) @ rounded(weight))
    assert_close(dweight, rounded(g).T @ rounded(x))
    assert_close(dbias, g.sum(0, dtype=float))


@pytest.mark.parametrize("shape", [(3, 2, 5, 7, operators.SIZE), (2, 3, 5, 7)])
@pytest.mark.parametrize("relu", [False, True])
@pytest.mark.parametrize("adds", [False, True])
def test_batch_norm_of_bfloat16_is_that_of_float32_rounded(shape: tuple[int, ...], relu: bool, adds: bool) -> None:
    """Bit by bit: it reads the same numbers, sums them in the same order and rounds what it writes."""
    draw = np.random.default_rng(0).standard_normal
    channels = shape[1] * (operators.SIZE if len(shape) == 5 else 1)
    x, dy, added = (rounded(2 * draw(shape) + 1).astype(np.float32) for _ in range(3))
    vectors = [draw(channels).astype(np.float32) for _ in range(4)]
    vectors[3] **= 2
    numbers, outputs = np.array([1e-3, 0.1, relu], np.float32), []
    for as_given in (np.asarray, narrow):
        more = [as_given(added)] if adds else []
        y, dx, dadded, inferred = (np.zeros_like(as_given(x)) for _ in range(4))
        moving = [vector.copy() for vector in vectors[2:]]  # updated in place
        mean, variance, root, dgamma, dbeta = made = [np.zeros(channels, np.float32) for _ in range(5)]
        call("batch_norm", as_given(x), *vectors[:2], *moving, numbers, *more, y, mean, variance, root)
        # The gradient reads y only for its sign, and a rounded number keeps it.
        known, also = ([y], [dadded]) if adds else ([], [])
        given = [as_given(dy), as_given(x), *vectors[:2], mean, root, numbers, *known]
        call("batch_norm_gradient", *given, dx, dgamma, dbeta, *also)
        call("batch_norm_inference", as_given(x), *vectors, numbers, *more, inferred)
        outputs.append(([y, dx, inferred, *also], made + moving))
    (whole, of_whole), (half, of_half) = outputs
    for mine, theirs in zip(half, whole, strict=True):
        assert mine.dtype == np.uint16
        np.testing.assert_array_equal(wide(mine), np.where(theirs == 0, 0, rounded(theirs)))
    for mine, theirs in zip(of_half, of_whole, strict=True):
        np.testing.assert_array_equal(mine, theirs)


@pytest.mark.parametrize("size", [1, 16, 67, 70_001])
def test_sums_of_gradients(size: int) -> None:
    draw = np.random.default_rng(0).standard_normal
    a, b = (rounded(draw(size)).astype(np.float32) for _ in range(2))
    a[0], total = np.nan, np.zeros(size, np.uint16)
    call("sum", narrow(a), narrow(b), total)
    np.testing.assert_array_equal(wide(total)[1:], np.where(a + b == 0, 0, rounded(a + b))[1:])
    assert np.isnan(wide(total)[0])


@pytest.fixture
def emulated(graph_mode: None) -> None:
    kernels.use_backend(kernels.select_backend("onednn", True, Products.EMULATED))


class Forked(nn.Cell):
    """x + x² through a fork in bfloat16, with x² from the second branch."""

    def __init__(self) -> None:
        super().__init__()
        self.fork = Fork()

    def construct(self, x: Tensor) -> Tensor:
        first, second = self.fork(x.astype(ms.bfloat16))
        return first.astype(ms.float32) + second.astype(ms.float32) ** 2


def test_a_fork_adds_the_gradients_of_both_branches(emulated: None) -> None:
    x = Tensor(np.array([1.0, -2.0, 0.5], np.float32))
    np.testing.assert_array_equal(ms.grad(Forked())(x).asnumpy(), [3, -3, 2])


class Weighted(nn.Cell):
    """The sum of what a cell makes of two tensors, times dc."""

    def __init__(self, cell: nn.Cell, dc: np.ndarray) -> None:
        super().__init__()
        self.cell, self.dc = cell, Tensor(dc)

    def construct(self, a: Tensor, b: Tensor) -> Tensor:
        return (self.cell(a, b) * self.dc).sum()


@pytest.mark.parametrize("transpose_b", [False, True])
def test_the_gradients_of_attentions_products(emulated: None, transpose_b: bool) -> None:
    draw = np.random.default_rng(0).standard_normal
    a, b = draw((2, 3, 5, 7)).astype(np.float32), draw((2, 3, *((4, 7) if transpose_b else (7, 4)))).astype(np.float32)
    dc = draw((2, 3, 5, 4)).astype(np.float32)
    cell = BatchProduct(transpose_b)
    turned = [rounded(b).swapaxes(2, 3), rounded(a).swapaxes(2, 3)]
    right = turned[0] if transpose_b else rounded(b)
    assert_close(cell(Tensor(a), Tensor(b)).asnumpy(), rounded(a) @ right)
    da, db = ms.grad(Weighted(cell, dc), (0, 1))(Tensor(a), Tensor(b))
    assert_close(da.asnumpy(), rounded(dc) @ right.swapaxes(2, 3))
    of_b = turned[1] @ rounded(dc)
    assert_close(db.asnumpy(), of_b.swapaxes(2, 3) if transpose_b else of_b)


def test_a_processor_without_bfloat16_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processor, "_features", lambda: frozenset({"avx2", "avx512f"}))
    assert not processor.has_bf16()
    (said,) = kernels.refusals("auto", True, Products.BFLOAT16)
    assert said.endswith("write precision=fp32.")
    with pytest.raises(kernels.UnavailableError, match=r"write precision=fp32\."):
        kernels.select_backend("auto", True, Products.BFLOAT16)
    assert list(kernels.refusals("auto", True, Products.EMULATED)) == []
    assert kernels.select_backend("auto", True, Products.EMULATED).products == Products.EMULATED
    for feature in ("avx512_bf16", "amx_bf16"):
        monkeypatch.setattr(processor, "_features", lambda feature=feature: frozenset({feature}))
        assert list(kernels.refusals("auto", True, Products.BFLOAT16)) == []


def test_bfloat16_does_not_fall_back(monkeypatch: pytest.MonkeyPatch) -> None:
    def none(*_: object) -> None:
        raise kernels.UnavailableError("no compiler; install one.")

    monkeypatch.setattr(backend.build, "library", none)
    with pytest.raises(kernels.UnavailableError, match=r"no compiler; install one\. Or write precision=fp32\."):
        kernels.select_backend("auto", True, Products.EMULATED)


def test_dense_layers_of_a_network_take_the_backends_products(emulated: None) -> None:
    x, layer = np.full((2, 3), 1 + 2**-12, np.float32), Dense(3, 4, weight_init="ones", has_bias=False)
    np.testing.assert_array_equal(layer(Tensor(x)).asnumpy(), np.full((2, 4), 3, np.float32))
    assert layer.weight.dtype == ms.float32
