"""`Conv2d` against its definition in float64 and against MindSpore's own."""

import mindspore as ms
import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from mindspore import ParameterTuple, Tensor, nn, ops

from msaccel.kernels import Conv2d
from tests import reference

pytestmark = pytest.mark.usefixtures("graph_mode")


class Differentiate(nn.Cell):
    """Inputs: x, dy. Outputs: y, dx and the parameters' gradients."""

    def __init__(self, network: nn.Cell) -> None:
        super().__init__(auto_prefix=False)
        self.network = network
        self.weights = ParameterTuple(network.trainable_params())
        self.gradient = ops.GradOperation(get_all=True, get_by_list=True, sens_param=True)

    def construct(self, x, dy):
        return self.network(x), self.gradient(self.network, self.weights)(x, dy)


@st.composite
def problems(draw):
    """Arguments of a convolution, an input shape and a seed."""
    kernel_size, stride, padding = draw(st.integers(1, 4)), draw(st.integers(1, 3)), draw(st.integers(0, 2))
    side = st.integers(max(1, kernel_size - 2 * padding), 8)
    channels, out_channels = draw(st.integers(1, 3)), draw(st.integers(1, 4))
    arguments = (channels, out_channels, kernel_size, stride, padding, draw(st.booleans()))
    return arguments, (draw(st.integers(1, 3)), channels, draw(side), draw(side)), draw(st.integers(0, 2**32 - 1))


def run(cell: nn.Cell, *arrays: np.ndarray) -> list[np.ndarray]:
    y, ((dx,), dweights) = Differentiate(cell)(*map(Tensor, arrays))
    return [tensor.asnumpy() for tensor in (y, dx, *dweights)]


@pytest.mark.slow
@pytest.mark.parametrize(("dtype", "tolerance"), [(ms.float32, 1e-5), (ms.float64, 1e-14)])
@settings(max_examples=4, deadline=None, derandomize=True)  # sums that cancel have no small relative error
@given(problem=problems())
@example(problem=((1, 2, 1, 3, 2, False), (1, 1, 1, 1), 0))  # the kernel meets padding only
@example(problem=((3, 4, 3, 2, 1, True), (3, 3, 8, 5), 1))
def test_values_and_gradients(dtype: ms.Type, tolerance: float, problem) -> None:
    arguments, shape, seed = problem
    _, _, _, stride, padding, has_bias = arguments
    draw = np.random.default_rng(seed).standard_normal
    cell, kind = Conv2d(*arguments, dtype=dtype), ms.dtype_to_nptype(dtype)
    for parameter in cell.get_parameters():
        parameter.set_data(Tensor(draw(parameter.shape).astype(kind)))
    weight, *bias = (parameter.asnumpy() for parameter in cell.get_parameters())
    x = draw(shape).astype(kind)
    expected = reference.convolution(x, weight, stride, padding)
    dy = draw(expected.shape).astype(kind)
    expected = [expected, *reference.convolution_gradients(x, weight, dy, stride, padding)]
    if has_bias:
        expected[0] += bias[0][:, None, None]
        expected.append(dy.sum((0, 2, 3), dtype=float))
    found = run(cell, x, dy)
    assert {array.dtype for array in found} == {np.dtype(kind)}
    for mine, theirs in zip(found, expected, strict=True):
        assert reference.distance([mine], [theirs]) <= tolerance


@pytest.mark.usefixtures("choice")
@pytest.mark.parametrize("channels", [3, 16], ids=["plain", "blocks"])
def test_padding_of_each_side(channels: int) -> None:
    """Without zeros at the bottom and the right the last row and column are missing, and all else is the same."""
    draw = np.random.default_rng(0)
    cells = [
        Conv2d(channels, 16, 3, padding=padding, blocked=channels == 16, wide=True) for padding in (1, (1, 0, 1, 0))
    ]
    weight = Tensor(draw.standard_normal(cells[0].weight.shape).astype(np.float32))
    for cell in cells:
        cell.weight.set_data(weight)
    x = draw.standard_normal((4, channels, 9, 7)).astype(np.float32)
    dy = draw.standard_normal(cells[1](Tensor(x)).shape).astype(np.float32)
    assert dy.shape[2:4] == (8, 6)
    larger = np.pad(dy, [(0, 0), (0, 0), (0, 1), (0, 1), (0, 0)][: dy.ndim])
    y, *gradients = run(cells[0], x, larger)
    for mine, theirs in zip(run(cells[1], x, dy), [y[:, :, :-1, :-1], *gradients], strict=True):
        assert mine.shape == theirs.shape and reference.distance([mine], [theirs]) <= 1e-5


@pytest.mark.parametrize("has_bias", [False, True])
class TestInterchangeable:
    """With `mindspore.nn.Conv2d`, both ways."""

    def both(self, has_bias: bool) -> tuple[nn.Cell, nn.Cell]:
        cells = []
        for kind, padding in ((Conv2d, {}), (nn.Conv2d, {"pad_mode": "pad"})):
            ms.set_seed(5)
            cells.append(kind(2, 3, 3, stride=2, padding=1, has_bias=has_bias, **padding))
        return tuple(cells)

    def test_names_and_shapes(self, has_bias: bool) -> None:
        ours, theirs = ({p.name: p.shape for p in cell.get_parameters()} for cell in self.both(has_bias))
        assert ours == theirs and len(ours) == 1 + has_bias

    def test_default_initialisation(self, has_bias: bool) -> None:
        ours, theirs = ([p.asnumpy() for p in cell.get_parameters()] for cell in self.both(has_bias))
        np.testing.assert_array_equal(ours[0], theirs[0])
        np.testing.assert_array_equal(ours[-1], theirs[-1])
        assert all(0 < np.abs(values).max() <= 1 / np.sqrt(2 * 3 * 3) for values in ours)

    def test_the_same_outputs_and_gradients(self, has_bias: bool) -> None:
        ours, theirs = self.both(has_bias)
        draw = np.random.default_rng(0).standard_normal
        for parameter in ours.get_parameters():
            parameter.set_data(Tensor(draw(parameter.shape), ms.float32))
        for source, target in ((ours, theirs), (theirs, ours)):
            assert ms.load_param_into_net(target, source.parameters_dict()) == ([], [])
        x, dy = draw((2, 2, 7, 6)).astype(np.float32), draw((2, 3, 4, 3)).astype(np.float32)
        assert reference.distance(run(ours, x, dy), run(theirs, x, dy)) <= 1e-6


def test_initialiser_of_the_weight_brings_a_zero_bias() -> None:
    cell = Conv2d(16, 32, 5, has_bias=True, init=ms.common.initializer.Normal(0.5))
    assert cell.weight.asnumpy().std() == pytest.approx(0.5, rel=0.05)
    assert not cell.bias.asnumpy().any()
