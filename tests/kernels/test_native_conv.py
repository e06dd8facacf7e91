"""The native convolutions against their definition in float64 over all shapes, and the backends against each other."""

import os
import subprocess
import sys
from pathlib import Path

import mindspore as ms
import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from mindspore import Tensor, nn

from msaccel import kernels
from msaccel.kernels import Conv2d, build
from msaccel.kernels.backend import Backend
from msaccel.kernels.conv_shape import Geometry
from msaccel.models.lenet.network import LeNet5
from tests.kernels import operators, reference
from tests.kernels.test_conv import run
from tests.reference import distance

pytestmark = pytest.mark.usefixtures("graph_mode")


@st.composite
def problems(draw):
    """A geometry, a shape of x, output channels, whether there is a bias, and a seed."""
    groups = draw(st.sampled_from([1, 1, 1, 2, 3, 19]))
    sides = st.integers(1, 3)
    if draw(st.booleans()):
        geometry = Geometry.square(draw(st.integers(1, 5)), draw(sides), draw(st.integers(0, 3)), draw(sides), groups)
    else:
        pair, zeros = st.tuples(sides, sides), st.tuples(*[st.integers(0, 3)] * 4)
        kernel = draw(st.tuples(st.integers(1, 5), st.integers(1, 5)))
        geometry = Geometry(kernel, draw(pair), draw(pair), draw(st.none() | zeros), groups)
    top, bottom, left, right = geometry.padding or (0, 0, 0, 0)
    height, width = (
        draw(st.integers(max(1, geometry.dilation[side] * (geometry.kernel[side] - 1) + 1 - zeros), 18))
        for side, zeros in enumerate((top + bottom, left + right))
    )
    each = st.sampled_from([1, 2, 3, 8, 16, 17] if groups < 4 else [1, 1, 2])
    channels, out_channels = (groups * draw(each) for _ in range(2))
    shape = (draw(st.integers(1, 4)), channels, height, width)
    return geometry, shape, out_channels, draw(st.booleans()), draw(st.integers(0))


def tensors(problem, kind: type) -> tuple[Geometry, list[np.ndarray]]:
    """The geometry, and x, dy, weight and perhaps a bias."""
    geometry, shape, out_channels, has_bias, seed = problem
    draw = np.random.default_rng(seed).standard_normal
    weight = (out_channels, shape[1] // geometry.groups, *geometry.kernel)
    y = (shape[0], out_channels, *geometry.out_size(*shape[2:]))
    shapes = [shape, y, weight, *([(out_channels,)] if has_bias else [])]
    return geometry, [draw(size).astype(kind) for size in shapes]


def expected(geometry: Geometry, x, dy, weight, *bias) -> list[np.ndarray]:
    y = reference.forward(x, weight, geometry) + sum(np.asarray(b, float)[:, None, None] for b in bias)
    return [y, *reference.gradients(x, weight, dy, geometry), *[dy.sum((0, 2, 3), dtype=float) for _ in bias]]


def found(geometry: Geometry, x, dy, weight, *bias) -> list[np.ndarray]:
    return [operators.forward(x, weight, bias, geometry), *operators.gradients(x, weight, bias, dy, geometry)]


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "tolerance"), [(np.float32, 1e-5), (np.float16, 1e-3)])
@settings(max_examples=150, deadline=None, derandomize=True)
@given(problem=problems())
@example(problem=(Geometry.square(1, 3, 2, 1, 1), (1, 1, 1, 1), 2, False, 0))  # the kernel meets padding only
@example(problem=(Geometry.square(5, 1, 0, 1, 1), (1, 3, 5, 5), 4, True, 0))  # one pixel comes out
@example(problem=(Geometry.square(3, 2, 1, 2, 48), (2, 48, 9, 7), 48, True, 0))  # depthwise
@example(problem=(Geometry.square(3, 1, 1, 1, 1), (8, 64, 28, 28), 64, True, 0))  # on several threads
@example(problem=(Geometry.square(1, 1, 0, 1, 1), (2, 1024, 5, 4), 37, True, 0))  # rows of the weight in one cache set
@example(problem=(Geometry.square(2, 1, 0, 1, 1), (8, 256, 15, 14), 70, False, 0))  # and on several threads
@example(problem=(Geometry((3, 3), (2, 2), (1, 1), None, 1), (2, 3, 8, 9), 4, True, 0))  # same: (0, 1) and (1, 1) zeros
@example(problem=(Geometry((1, 1), (3, 3), (1, 1), None, 1), (2, 3, 8, 8), 4, False, 0))  # same: no zeros
@example(problem=(Geometry((1, 7), (1, 2), (1, 1), (0, 0, 3, 3), 1), (2, 16, 1, 20), 16, True, 0))  # one dimension
@example(problem=(Geometry.square(5, 1, 0, 1, 1), (3, 1, 32, 32), 6, False, 0))  # of a LeNet: a single channel
@example(problem=(Geometry((7, 6), (1, 1), (2, 1), (5, 0, 2, 4), 1), (9, 1, 60, 47), 5, False, 0))  # its rows in parts
@example(problem=(Geometry((3, 5), (2, 3), (1, 2), (1, 3, 0, 9), 1), (40, 1, 33, 50), 12, False, 0))  # and with strides
def test_values_and_gradients(kind: type, tolerance: float, problem) -> None:
    geometry, arrays = tensors(problem, kind)
    for mine, theirs in zip(found(geometry, *arrays), expected(geometry, *arrays), strict=True):
        assert mine.dtype == kind
        # Sums that cancel have no small relative error: compared with the largest that could have come out.
        assert np.abs(mine - theirs).max() <= tolerance * max(1, np.abs(theirs).max())


@pytest.mark.parametrize("factor", [1.0, 1 / 3, 7.0, 2**-9], ids=str)
def test_every_float16_is_read_and_rounded_as_numpy_does(factor: float) -> None:
    x = np.arange(2**16, dtype=np.uint16).view(np.float16).reshape(1, 1, 256, 256)
    weight = np.full((1, 1, 1, 1), factor, np.float16)
    found = operators.forward(x, weight, [], Geometry.square(1, 1, 0, 1, 1))
    with np.errstate(over="ignore", invalid="ignore"):
        np.testing.assert_array_equal(found, (x.astype(np.float32) * weight.astype(np.float32)).astype(np.float16))


@settings(max_examples=20, deadline=None, derandomize=True)
@given(problem=problems())
def test_the_reference_has_the_gradients_of_its_values(problem) -> None:
    geometry, (x, dy, weight, *_) = tensors(problem, np.float64)
    draw = np.random.default_rng(0).standard_normal
    directions = [draw(x.shape), draw(weight.shape)]
    gradients = reference.gradients(x, weight, dy, geometry)
    for which, (direction, gradient) in enumerate(zip(directions, gradients, strict=True)):
        ends = []
        for step in (-1e-4, 1e-4):
            moved = [x, weight]
            moved[which] = moved[which] + step * direction
            ends.append(np.sum(dy * reference.forward(*moved, geometry)))
        assert np.sum(gradient * direction) == pytest.approx((ends[1] - ends[0]) / 2e-4, rel=1e-6, abs=1e-6)


def test_the_same_bits_twice_and_with_a_new_plan() -> None:
    problem = (Geometry.square(3, 1, 1, 1, 1), (4, 19, 23, 17), 33, True, 0)
    geometry, arrays = tensors(problem, np.float32)
    first = found(geometry, *arrays)
    for renewed in (False, True):
        if renewed:
            operators.forget_plans()
        for mine, before in zip(found(geometry, *arrays), first, strict=True):
            np.testing.assert_array_equal(mine, before)


def test_plans_beyond_the_limit_are_forgotten_and_made_again() -> None:
    operators.limit_plans(4)
    try:
        for _ in range(2):
            for side in range(5, 12):
                geometry, arrays = tensors(
                    (Geometry.square(3, 1, 1, 1, 1), (2, 3, side, side), 5, True, side), np.float32
                )
                for mine, theirs in zip(found(geometry, *arrays), expected(geometry, *arrays), strict=True):
                    assert distance([mine], [theirs]) <= 1e-6
                assert operators.plans() <= 4
    finally:
        operators.limit_plans(512)


@pytest.mark.slow
def test_threads_and_load_do_not_change_the_bits() -> None:
    """Many operators at once on three threads: shared workers, busy workers, and the same bits in each."""
    environment = {**os.environ, "OMP_NUM_THREADS": "3", "PYTHONPATH": os.pathsep.join(sys.path)}
    script = str(Path(__file__).with_name("at_once.py"))
    digests = {subprocess.check_output([sys.executable, script], env=environment, timeout=500) for _ in range(2)}
    assert len(digests) == 1


BACKENDS = ("onednn", "unfold", "mindspore")


def cell(backend: str, *arguments: object, **keywords: object) -> nn.Cell:
    kernels.use_backend(kernels.select_backend(backend, on_cpu=True))
    ms.set_seed(1)
    return Conv2d(*arguments, **keywords)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize(
    "arguments",
    [
        {"in_channels": 4, "out_channels": 6, "kernel_size": 3, "stride": 2, "padding": 1, "has_bias": True},
        {"in_channels": 4, "out_channels": 6, "kernel_size": 3, "padding": 2, "dilation": 2, "group": 2},
        {"in_channels": 4, "out_channels": 4, "kernel_size": 3, "group": 4, "has_bias": True},
    ],
    ids=["biased", "grouped and dilated", "depthwise"],
)
def test_every_cell_computes_the_same(backend: str, arguments: dict) -> None:
    made = cell(backend, **arguments)
    draw = np.random.default_rng(0).standard_normal
    for parameter in made.get_parameters():
        parameter.set_data(Tensor(draw(parameter.shape), ms.float32))
    weight, *bias = (parameter.asnumpy() for parameter in made.get_parameters())
    given = {"stride": 1, "padding": 0, "dilation": 1, "group": 1, **arguments}
    geometry = Geometry.square(3, given["stride"], given["padding"], given["dilation"], given["group"])
    x = draw((3, 4, 9, 8)).astype(np.float32)
    dy = draw(reference.forward(x, weight, geometry).shape).astype(np.float32)
    for mine, theirs in zip(run(made, x, dy), expected(geometry, x, dy, weight, *bias), strict=True):
        assert distance([mine], [theirs]) <= 1e-6


@pytest.mark.parametrize("backend", BACKENDS)
def test_in_float16(backend: str) -> None:
    made = cell(backend, 3, 4, 3, padding=1, has_bias=True).to_float(ms.float16)
    for _, inner in made.cells_and_names():
        if hasattr(inner, "bprop"):
            inner.add_flags(fp16=False)
    draw = np.random.default_rng(0).standard_normal
    x, dy = draw((2, 3, 6, 5)).astype(np.float16), draw((2, 4, 6, 5)).astype(np.float16)
    weight, bias = (parameter.asnumpy() for parameter in made.get_parameters())
    found = run(made, x, dy)
    assert [str(array.dtype) for array in found] == ["float16", "float16", "float32", "float32"]
    for mine, theirs in zip(found, expected(Geometry.square(3, 1, 1, 1, 1), x, dy, weight, bias), strict=True):
        assert distance([mine], [theirs]) <= 2e-3


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_kernel_that_does_not_fit_is_said_when_the_graph_is_built(backend: str, tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)  # MindSpore writes the graph that failed
    made = cell(backend, 1, 1, 3, dilation=2, padding=1)
    with pytest.raises(ValueError, match="reaches over 5 pixels does not fit into an input of 2 × 9 padded by 1"):
        made(Tensor(np.zeros((1, 1, 2, 9), np.float32)))


def test_channels_that_cannot_be_parted() -> None:
    with pytest.raises(ValueError, match="3 to 4 channels cannot be parted into 2 groups"):
        Conv2d(3, 4, 1, group=2)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("x", "weight", "said"),
    [
        (np.zeros((1, 2, 4, 4), np.float32), np.zeros((1, 1, 1, 1), np.float32), "the shapes do not belong together"),
        (np.zeros((1, 1, 4, 4)), np.zeros((1, 1, 1, 1)), "compute in float32, float16 or bfloat16, not float64"),
        (np.zeros((1, 1, 4, 4), np.float32), np.zeros((1, 1, 1, 1), np.float16), "is of type float16, others are not"),
        (np.zeros((1, 1, 4, 4), np.float32), np.zeros((1, 1, 1), np.float32), "has 3 dimensions, not 4"),
    ],
    ids=["channels", "type", "types", "dimensions"],
)
def test_errors_become_exceptions(x: np.ndarray, weight: np.ndarray, said: str) -> None:
    convolution = cell("onednn", 1, 1, 1).convolution
    with pytest.raises(RuntimeError, match=said):
        convolution(Tensor(x), Tensor(weight)).asnumpy()


def curve(backend: str, images: Tensor, labels: Tensor) -> list[float]:
    kernels.use_backend(kernels.select_backend(backend, on_cpu=True))
    ms.set_seed(3)
    network = LeNet5(10)
    loss = nn.WithLossCell(network, nn.SoftmaxCrossEntropyWithLogits(sparse=True, reduction="mean"))
    step = nn.TrainOneStepCell(loss, nn.Momentum(network.trainable_params(), 0.1, 0.9)).set_train()
    return [float(step(images, labels).asnumpy()) for _ in range(20)]


@pytest.mark.soak  # tests/training/test_same_with_any_kernels.py compares a job's losses
def test_lenet_learns_along_the_same_curve() -> None:
    draw = np.random.default_rng(0)
    classes = draw.integers(0, 10, 32).astype(np.int32)
    patterns = draw.standard_normal((10, 1, 32, 32)).astype(np.float32)
    images, labels = Tensor(3 * patterns[classes]), Tensor(classes)
    theirs = curve("mindspore", images, labels)
    assert theirs[-1] < 0.9 * theirs[0]
    for backend in ("onednn", "unfold"):
        assert curve(backend, images, labels) == pytest.approx(theirs, rel=1e-4)


def test_which_backend_is_selected(monkeypatch: pytest.MonkeyPatch) -> None:
    def none(*_: object) -> Path:
        raise build.UnavailableError("no compiler; install one.")

    assert kernels.select_backend("auto", on_cpu=False) == Backend("mindspore", tag="mindspore")
    assert kernels.select_backend("unfold", on_cpu=True) == Backend("unfold", tag="unfold")
    selected = kernels.select_backend("auto", on_cpu=True)
    assert selected.name == "onednn" and selected.tag == f"onednn-{build.source_digest()[:8]}" in str(selected)
    assert list(kernels.refusals("onednn", on_cpu=True)) == []
    assert "write kernels.use=auto" in next(kernels.refusals("onednn", on_cpu=False))
    monkeypatch.setattr(build, "library", none)
    assert "no compiler; install one." in str(kernels.select_backend("auto", on_cpu=True))
    with pytest.raises(kernels.UnavailableError, match=r"no compiler; install one\. Or write kernels\.use=auto\."):
        kernels.select_backend("onednn", on_cpu=True)
