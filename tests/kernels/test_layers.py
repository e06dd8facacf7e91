"""Pooling and batch normalisation against their definitions in float64 and against MindSpore's own."""

from collections.abc import Iterator

import mindspore as ms
import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from mindspore import Tensor, nn

from msaccel import kernels
from msaccel.kernels import BatchNorm2d, MaxPool2d
from msaccel.kernels.pool import SAME
from tests.kernels.operators import call
from tests.kernels.test_conv import Differentiate
from tests.reference import distance

pytestmark = pytest.mark.usefixtures("graph_mode", "onednn")


@pytest.fixture(scope="module")
def onednn() -> Iterator[None]:
    before = kernels.current_backend()
    kernels.use_backend(kernels.select_backend("onednn", on_cpu=True))
    yield
    kernels.use_backend(before)


@st.composite
def pools(draw):
    """Kernel size, stride, padding, whether a ReLU follows, a shape of x and a seed."""
    kernel_size, stride = draw(st.integers(1, 4)), draw(st.integers(1, 4))
    padding = draw(st.integers(0, kernel_size // 2))
    side = st.integers(max(1, kernel_size - 2 * padding), 13)
    shape = (draw(st.integers(1, 3)), draw(st.integers(1, 5)), draw(side), draw(side))
    return kernel_size, stride, padding, draw(st.booleans()), shape, draw(st.integers(0, 2**32))


def pooled(x: np.ndarray, kernel_size: int, stride: int, padding: int, relu: bool) -> tuple[np.ndarray, np.ndarray]:
    """y, and for each of its elements the place in x that it comes from, or −1."""
    n, c, height, width = x.shape
    if padding == SAME:
        sides = [-(-side // stride) for side in (height, width)]
        missing = [(out - 1) * stride + kernel_size - side for out, side in zip(sides, (height, width), strict=True)]
        above, before = (max(0, size) // 2 for size in missing)
    else:
        sides = [(side + 2 * padding - kernel_size) // stride + 1 for side in (height, width)]
        above = before = padding
    y, places = np.zeros((n, c, *sides), x.dtype), np.full((n, c, *sides), -1)
    for i, j in np.ndindex(*sides):
        top, left = i * stride - above, j * stride - before
        rows = slice(max(top, 0), min(top + kernel_size, height))
        columns = slice(max(left, 0), min(left + kernel_size, width))
        seen = x[:, :, rows, columns].reshape(n, c, -1)
        first = seen.argmax(-1)  # of equals the first
        y[:, :, i, j] = seen.max(-1)
        row, column = np.unravel_index(first, (rows.stop - rows.start, columns.stop - columns.start))
        places[:, :, i, j] = (rows.start + row) * width + columns.start + column
    if relu:
        places[y <= 0] = -1
        y = np.maximum(y, 0)
    return y, places


@settings(max_examples=150, deadline=None, derandomize=True)
@given(problem=pools())
@example(problem=(3, 2, 1, True, (2, 3, 112, 113), 0))
@example(problem=(2, 2, 0, True, (3, 2, 4, 70), 0))  # halving, with vectors that reach beyond a row
@example(problem=(2, 2, 0, False, (8, 40, 10, 10), 0))
@example(problem=(2, 2, 0, True, (32, 16, 28, 30), 0))  # on several threads
@example(problem=(3, 1, 1, False, (2, 2, 5, 40), 0))  # several vectors a row, with each stride
@example(problem=(2, 3, 0, False, (1, 2, 4, 113), 0))
@example(problem=(4, 4, 2, True, (1, 2, 9, 150), 0))
@example(problem=(7, 7, 0, False, (1, 3, 7, 7), 0))
@example(problem=(3, 2, -1, False, (2, 2, 8, 70), 0))  # as pad_mode="same"
@example(problem=(4, 1, -1, True, (2, 2, 5, 37), 0))
@example(problem=(2, 3, -1, False, (2, 2, 7, 101), 0))
def test_pooling_and_its_gradient(problem) -> None:
    kernel_size, stride, padding, relu, shape, seed = problem
    draw = np.random.default_rng(seed)
    x = draw.integers(-4, 5, shape).astype(np.float32)  # with equals
    expected, places = pooled(x, kernel_size, stride, padding, relu)
    numbers = np.array([kernel_size, stride, padding, relu], np.int32)
    y, taps = np.full_like(expected, np.nan), np.zeros(expected.shape, np.uint8)
    call("max_pool", x, numbers, y, taps)
    np.testing.assert_array_equal(y, expected)
    dy, dx = draw.standard_normal(y.shape).astype(np.float32), np.full_like(x, np.nan)
    call("max_pool_gradient", dy, taps, x, numbers, dx)
    wanted = np.zeros((shape[0] * shape[1], shape[2] * shape[3]))
    by_plane = (len(wanted), -1)
    for plane, to, gradient in zip(wanted, places.reshape(by_plane), dy.reshape(by_plane), strict=True):
        np.add.at(plane, to[to >= 0], gradient[to >= 0])
    np.testing.assert_allclose(dx.reshape(wanted.shape), wanted, atol=1e-6)


def test_pooling_keeps_what_is_not_a_number() -> None:
    x = np.array([[[[1, np.nan, -1, -2], [3, 2, np.nan, np.inf]]]], np.float32)
    found = MaxPool2d(2, 2, relu=True)(Tensor(x)).asnumpy()
    assert np.isnan(found).all()


class Sequence(nn.Cell):
    def __init__(self, *cells: nn.Cell) -> None:
        super().__init__()
        self.cells_of_it = nn.SequentialCell(*cells)

    def construct(self, x):
        return self.cells_of_it(x)


def differentiated(network: nn.Cell, x: np.ndarray, dy: np.ndarray) -> list[np.ndarray]:
    y, ((dx,), dweights) = Differentiate(network.set_train())(Tensor(x), Tensor(dy))
    return [tensor.asnumpy() for tensor in (y, dx, *dweights)]


class WithWeight(nn.Cell):
    """Gives a cell without parameters one, which `Differentiate` asks for."""

    def __init__(self, cell: nn.Cell) -> None:
        super().__init__()
        self.cell = cell
        self.weight = ms.Parameter(Tensor(2.0, ms.float32), name="weight")

    def construct(self, x):
        return self.cell(x) * self.weight.astype(x.dtype)


@pytest.mark.parametrize("kind", [np.float32, np.float16])
@pytest.mark.parametrize("choice", ["onednn", "unfold"])
def test_pooling_as_mindspore(choice: str, kind: type) -> None:
    kernels.use_backend(kernels.select_backend(choice, on_cpu=True))
    ours, theirs = MaxPool2d(3, 2, 1, relu=True), Sequence(nn.ReLU(), nn.MaxPool2d(3, 2, pad_mode="pad", padding=1))
    draw = np.random.default_rng(0).standard_normal
    x, dy = draw((2, 3, 9, 8)).astype(kind), draw((2, 3, 5, 4)).astype(kind)
    for mine, other in zip(*(differentiated(WithWeight(cell), x, dy) for cell in (ours, theirs)), strict=True):
        np.testing.assert_allclose(mine, other, rtol=1e-6 if kind is np.float32 else 1e-2)


@pytest.mark.parametrize("value", [-np.inf, np.inf, np.nan])
@pytest.mark.parametrize(("kernel_size", "stride", "padding"), [(3, 1, 1), (3, 2, 1), (2, 2, 1), (2, 2, 0)])
def test_the_gradient_of_pooling_stays_inside(value: float, kernel_size: int, stride: int, padding: int) -> None:
    """In an image that holds one value alone no tap is greater than another, and one inside it is kept."""
    x = np.full((2, 3, 6, 6), value, np.float32)
    cell = MaxPool2d(kernel_size, stride, padding)
    y = cell(Tensor(x)).asnumpy()
    np.testing.assert_array_equal(y, np.full_like(y, value))
    _, dx, *_ = differentiated(WithWeight(cell), x, np.ones_like(y))
    assert dx.min() >= 0 and dx.sum() == 2 * y.size, "twice the ones, each at one place"


@settings(max_examples=60, deadline=None, derandomize=True)
@given(
    shape=st.tuples(st.integers(1, 5), st.integers(1, 5), st.integers(1, 19), st.integers(1, 9)),
    relu=st.booleans(),
    mean=st.sampled_from([0.0, 3.0, -40.0]),
    seed=st.integers(0, 2**32),
)
@example(shape=(2, 3, 90, 91), relu=True, mean=1.0, seed=0)
@example(shape=(8, 40, 16, 16), relu=True, mean=1.0, seed=0)  # on several threads
def test_batch_norm_and_its_gradients(shape: tuple[int, ...], relu: bool, mean: float, seed: int) -> None:
    draw, channels, count = np.random.default_rng(seed).standard_normal, shape[1], np.prod(shape) / shape[1]
    x, dy = ((offset + draw(shape)).astype(np.float32) for offset in (mean, 0))
    vectors = [draw(channels).astype(np.float32) for _ in range(4)]
    numbers = np.array([1e-3, 0.1, relu], np.float32)
    y, dx = np.full_like(x, np.nan), np.full_like(x, np.nan)
    means, variances, roots, dgamma, dbeta = (np.full(channels, np.nan, np.float32) for _ in range(5))
    new_mean, new_variance = vectors[2].copy(), vectors[3].copy()  # updated in place
    call("batch_norm", x, *vectors[:2], new_mean, new_variance, numbers, y, means, variances, roots)
    call("batch_norm_gradient", dy, x, *vectors[:2], means, roots, numbers, dx, dgamma, dbeta)

    gamma, beta, old_mean, old_variance = (vector.astype(float)[:, None, None] for vector in vectors)
    wide, axes = x.astype(float), (0, 2, 3)
    average, variance = wide.mean(axes, keepdims=True)[0], wide.var(axes, keepdims=True)[0]
    unit = (wide - average) / np.sqrt(variance + 1e-3)
    value = gamma * unit + beta
    gradient = np.where(relu & (y == 0), 0, dy)  # at the bend rounding decides, so by our y
    terms = [(gradient * factor).sum(axes, keepdims=True)[0] for factor in (1, unit)]
    expected_dx = gamma / np.sqrt(variance + 1e-3) * (gradient - terms[0] / count - unit * terms[1] / count)
    size = np.abs(gamma / np.sqrt(variance + 1e-3)).max()  # what a rounding of x becomes
    tolerance = 2e-6 * (1 + abs(mean)) * max(1, size)
    np.testing.assert_allclose(y, np.maximum(value, 0) if relu else value, atol=10 * tolerance, rtol=1e-5)
    np.testing.assert_allclose(dbeta, terms[0].ravel(), atol=1e-5 * count**0.5)
    np.testing.assert_allclose(dgamma, terms[1].ravel(), atol=10 * tolerance * count**0.5, rtol=1e-4)
    np.testing.assert_allclose(dx, expected_dx, atol=20 * tolerance * max(1, size), rtol=1e-4)
    np.testing.assert_allclose(variances, variance.ravel(), atol=1e-6 * (1 + abs(mean)) ** 2, rtol=1e-5)
    unbiased = variance * count / (count - 1) if count > 1 else old_variance  # a single value has none
    np.testing.assert_allclose(new_mean, (0.9 * old_mean + 0.1 * average).ravel(), atol=1e-5)
    np.testing.assert_allclose(new_variance, (0.9 * old_variance + 0.1 * unbiased).ravel(), atol=1e-5)


def test_batch_norm_as_mindspore_in_training_and_after_it() -> None:
    draw = np.random.default_rng(0).standard_normal
    x, dy = (3 + draw((4, 6, 9, 8))).astype(np.float32), draw((4, 6, 9, 8)).astype(np.float32)
    ours, theirs = BatchNorm2d(6, 1e-4, 0.9, relu=True), nn.BatchNorm2d(6, 1e-4, 0.9)
    for one, other in zip(ours.get_parameters(), theirs.get_parameters(), strict=True):
        assert one.name == other.name and one.requires_grad == other.requires_grad
        value = Tensor(draw(one.shape).astype(np.float32) + 2)
        one.set_data(value)
        other.set_data(value)
    reference = Sequence(theirs, nn.ReLU())
    for mine, their in zip(differentiated(ours, x, dy), differentiated(reference, x, dy), strict=True):
        assert distance([mine], [their]) <= 1e-5
    for name in ("moving_mean", "moving_variance"):  # moved once each by value and by gradient
        found = [getattr(cell, name).asnumpy() for cell in (ours, theirs)]
        np.testing.assert_allclose(*found, rtol=1e-5)
    for cell in (ours, reference):
        cell.set_train(False)
    np.testing.assert_allclose(ours(Tensor(x)).asnumpy(), reference(Tensor(x)).asnumpy(), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_batch_norm_passes_on_what_is_not_finite_and_keeps_it_out_of_its_statistics(value: float) -> None:
    x = np.zeros((2, 2, 3, 3), np.float32)
    x[0, 1, 0, 0] = value
    norm = BatchNorm2d(2, relu=True).set_train()
    found = norm(Tensor(x)).asnumpy()
    assert not found[:, 0].any() and np.isnan(found[:, 1]).all()
    np.testing.assert_array_equal(norm.moving_mean.asnumpy(), [0, 0])
    np.testing.assert_array_equal(norm.moving_variance.asnumpy(), [np.float32(0.9), 1], "moved by the finite one alone")
