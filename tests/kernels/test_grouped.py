"""The weight's gradient of convolutions in groups of few channels: against float64, and by whom it is computed."""

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from msaccel.kernels.conv_shape import Geometry
from tests.kernels import operators, reference

DEPTHWISE = Geometry.square(5, 1, 2, 1, 6)


@st.composite
def problems(draw):
    """A geometry with groups of one or two channels, a shape of x, and the outputs of a group."""
    sides, groups = st.integers(1, 3), draw(st.integers(2, 5) | st.just(19))
    kernel = draw(st.tuples(st.integers(1, 9), st.integers(1, 9)))
    dilation, stride = draw(st.tuples(sides, sides)), draw(st.tuples(sides, sides))
    padding = draw(st.none() | st.tuples(*[st.integers(0, 5)] * 4))
    reach = [dilation[side] * (kernel[side] - 1) + 1 for side in (0, 1)]
    height, width = (draw(st.integers(reach[side] if padding else 1, reach[side] + 20)) for side in (0, 1))
    most = 1 if groups == 19 else 3  # of 19: depthwise, with channels in the lanes of a vector
    shape = (draw(st.integers(1, 5)), groups * draw(st.integers(1, min(most, 2))), height, width)
    return Geometry(kernel, stride, dilation, padding, groups), shape, draw(st.integers(1, most))


def tensors(geometry: Geometry, shape: tuple[int, int, int, int], outputs: int) -> tuple[np.ndarray, ...]:
    """x, the weight and dy in float32."""
    draw = np.random.default_rng(0).standard_normal
    out = geometry.groups * outputs
    of_weight = (out, shape[1] // geometry.groups, *geometry.kernel)
    of_y = (shape[0], out, *geometry.out_size(*shape[2:]))
    x, weight, dy = (draw(size).astype(np.float32) for size in (shape, of_weight, of_y))
    return x, weight, dy


@settings(max_examples=150, deadline=None, derandomize=True)
@given(problem=problems())
@example(problem=(DEPTHWISE, (30, 6, 13, 12), 1))  # images whose sums are joined in float64
@example(problem=(DEPTHWISE, (2, 6, 75, 71), 1))  # more pixels than are summed in float32
@example(problem=(Geometry.square(7, 1, 3, 1, 2), (1, 2, 2, 9000), 1))  # in a single row
@example(problem=(Geometry.square(3, 1, 1, 1, 5), (3, 20, 9, 17), 4))  # four channels to four
@example(problem=(Geometry.square(5, 1, 2, 1, 19), (30, 19, 13, 12), 1))  # depthwise, of small images
@example(problem=(Geometry.square(7, 1, 3, 1, 33), (2, 33, 100, 20), 1))  # and with rows summed in float64
def test_the_gradient_is_that_of_float64(problem) -> None:
    geometry = problem[0]
    x, weight, dy = tensors(*problem)
    wanted = reference.gradients(x, weight, dy, geometry)[1]
    for bias in ([], [np.zeros(len(weight), np.float32)]):
        _, found, *of_bias = operators.gradients(x, weight, bias, dy, geometry)
        assert np.abs(found - wanted).max() <= 2e-6 * max(1, np.abs(wanted).max())
        for dbias in of_bias:
            np.testing.assert_allclose(dbias, dy.sum((0, 2, 3), dtype=float), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    ("geometry", "shape", "outputs", "onednns"),
    [
        (Geometry.square(5, 1, 2, 1, 6), (2, 6, 9, 9), 1, 0),
        (Geometry.square(3, 1, 2, 2, 6), (2, 6, 9, 9), 1, 0),
        (Geometry.square(3, 1, 1, 1, 6), (2, 6, 9, 9), 1, 1),
        (Geometry.square(3, 1, 1, 1, 16), (2, 16, 3, 2), 1, 1),
        (Geometry.square(3, 1, 1, 1, 16), (2, 16, 2, 3), 1, 0),
        (Geometry.square(3, 2, 1, 1, 16), (2, 16, 3, 4), 1, 0),
        (Geometry.square(3, 1, 1, 1, 6), (2, 6, 9, 9), 2, 0),
        (Geometry.square(3, 1, 1, 1, 3), (2, 12, 9, 16), 4, 0),
        (Geometry.square(3, 1, 1, 1, 3), (2, 12, 9, 15), 4, 1),
        (Geometry.square(3, 1, 1, 1, 2), (2, 16, 9, 16), 8, 1),
        (Geometry.square(1, 1, 0, 1, 6), (2, 6, 9, 9), 2, 1),
    ],
    ids=[
        "5 × 5",
        "dilated",
        "3 × 3",
        "of three rows",
        "of two",
        "of three, every other",
        "two of one",
        "of four",
        "narrow",
        "of eight",
        "1 × 1",
    ],
)
def test_where_onednn_is_fast_it_computes(geometry: Geometry, shape, outputs: int, onednns: int) -> None:
    x, weight, dy = tensors(geometry, shape, outputs)
    operators.forget_plans()
    operators.call("convolution_weight_gradient", x, dy, weight, operators.numbers(geometry), np.zeros_like(weight))
    assert operators.plans() == onednns


@pytest.mark.parametrize("groups", [2, 16])
def test_an_infinite_value_reaches_the_taps_that_see_it_alone(groups: int) -> None:
    """The first two taps of a row see the last column of x nowhere."""
    geometry = Geometry.square(5, 1, 2, 1, groups)
    x, weight, dy = tensors(geometry, (1, groups, 5, 5), 1)
    x[..., 4] = np.inf
    found = operators.gradients(x, weight, [], dy, geometry)[1]
    assert np.isfinite(found[..., :2]).all()
    assert not np.isfinite(found[..., 2:]).any()
