"""Shampoo: its inverse roots, tensors of a LeNet against float64, its symmetries, and what it leaves to AdamW."""

from collections.abc import Sequence
from itertools import pairwise

import mindspore as ms
import numpy as np
import pytest
from mindspore import Parameter, Tensor, nn

from msaccel import schema
from msaccel.errors import ConfigError
from msaccel.training import optimizers
from msaccel.training.notebook import build_job
from msaccel.training.optimizers.shampoo import inverse_root
from tests import reference
from tests.training import recursions

pytestmark = pytest.mark.usefixtures("graph_mode")

RATE = 0.1
COMMON = ("data=synthetic", "tracking.uri=sqlite:///none")
OWN = {"beta1": 0.8, "beta2": 0.97, "eps": 1e-8, "ridge": 0.01, "interval": 1, "max_size": 1024}
Arrays = list[np.ndarray]


class Root(nn.Cell):
    def __init__(self, exponent: float, ridge: float) -> None:
        super().__init__()
        self.exponent, self.ridge = exponent, ridge

    def construct(self, matrix: Tensor) -> Tensor:
        return inverse_root(matrix, self.exponent, self.ridge)


def drawn(shapes: Sequence[tuple[int, ...]], times: int, seed: int = 0) -> list[Arrays]:
    """Gradients of float32 numbers, whose rows and columns have sizes of their own."""
    draw = np.random.default_rng(seed)
    scales = [np.exp(draw.normal(0, 1, shape[:1] + (1,) * (len(shape) - 1))) for shape in shapes]
    return [
        [(s * draw.standard_normal(shape)).astype(np.float32) for s, shape in zip(scales, shapes, strict=True)]
        for _ in range(times)
    ]


def trained(weights: Arrays, gradients: Sequence[Arrays], decay: float = 0.0, **changed: object) -> list[Arrays]:
    """The weights before and after each of these updates."""
    parameters = [Parameter(w.astype(np.float32), name=f"w{i}") for i, w in enumerate(weights)]
    settings = schema.ShampooSettings("shampoo", lr=RATE, weight_decay=decay, **{**OWN, **changed})
    optimizer = optimizers.build(parameters, settings)
    path = [[p.asnumpy().copy() for p in parameters]]
    for each in gradients:
        optimizer(tuple(map(Tensor, each)))
        path.append([p.asnumpy().copy() for p in parameters])
    return path


def steps(path: list[Arrays]) -> Arrays:
    """The steps of the first tensor."""
    return [after[0].astype(float) - before[0] for before, after in pairwise(path)]


@pytest.mark.parametrize(
    ("size", "condition", "power"), [(1, 1, 4), (7, 1, 2), (7, 1e8, 4), (120, 1e4, 2), (120, 1e8, 2), (120, 1e8, 4)]
)
def test_roots_are_those_of_numpy(size: int, condition: float, power: int) -> None:
    """To single precision, whatever the condition: the eigenvalues of what is given are found in double precision."""
    draw = np.random.default_rng(size)
    basis = np.linalg.qr(draw.standard_normal((size, size)))[0]
    matrix = (3 * basis * np.geomspace(1, 1 / condition, size) @ basis.T).astype(np.float32)
    found = Root(-1 / power, 1e-7)(Tensor(matrix)).asnumpy()
    even = (matrix.astype(float) + matrix.T) / 2  # else NumPy and MindSpore read different halves
    expected = recursions.inverse_root(even / np.linalg.norm(even, 2), power, 1e-7)
    assert reference.distance([found], [expected]) < 1e-6


def test_a_matrix_of_zeros_has_a_finite_root() -> None:
    found = Root(-0.25, 1e-4)(Tensor(np.zeros((3, 3), np.float32))).asnumpy()
    np.testing.assert_allclose(found, 10 * np.eye(3), rtol=1e-6)


LENET = [(6, 1, 5, 5), (16, 6, 5, 5), (120, 400), (120,), (84, 120), (84,), (10, 84), (10,)]
CASES = {
    "all sides": (8, {}),  # with roots in every update
    "one side and none": (20, {"max_size": 100, "interval": 3}),
    "no momentum": (20, {"beta1": 0.0, "interval": 4, "ridge": 0.1}),
}


@pytest.mark.slow
@pytest.mark.parametrize(("updates", "changed"), CASES.values(), ids=CASES)
def test_updates_of_tensors_of_a_lenet_are_those_of_float64(updates: int, changed: dict) -> None:
    weights, gradients = drawn(LENET, 1, seed=1)[0], drawn(LENET, updates)
    path = trained(weights, gradients, decay=0.1, **changed)
    expected = [w.astype(float) for w in weights]
    walk = recursions.shampoo(expected, [0.1] * len(LENET), **{**OWN, **changed})
    next(walk)
    for found, each in zip(path[1:], gradients, strict=True):
        expected = walk.send((expected, [g.astype(float) for g in each], RATE))
        assert max(reference.distance([a], [b]) for a, b in zip(found, expected, strict=True)) < 1e-5


@pytest.mark.parametrize("max_size", [1024, 6], ids=["two sides", "one side"])
def test_the_first_step_is_orthogonal(max_size: int) -> None:
    """One gradient is preconditioned by its own singular values, so that all of them become equal, as with Muon."""
    gradients = drawn([(6, 8)], 1)
    (step,) = steps(trained([np.zeros((6, 8))], gradients, ridge=1e-7, max_size=max_size))
    u, _, vh = np.linalg.svd(gradients[0][0].astype(float), full_matrices=False)
    assert reference.distance([step / np.linalg.norm(step)], [-u @ vh / np.linalg.norm(u @ vh)]) < 1e-4
    assert np.linalg.norm(step) == pytest.approx(RATE * 48**0.5, rel=1e-4), "as long as AdamW's, of signs alone"


def test_directions_turn_with_the_gradients() -> None:
    """In other bases of rows and columns, Q and S, gradients are Q G Sᵀ. Lengths are AdamW's, which do not turn."""
    draw, gradients = np.random.default_rng(2), drawn([(6, 8)], 10)
    q, s = (np.linalg.qr(draw.standard_normal((size, size)))[0] for size in (6, 8))
    turned = [[(q @ g.astype(float) @ s.T).astype(np.float32)] for (g,) in gradients]
    pairs = zip(*(steps(trained([np.zeros((6, 8))], each)) for each in (gradients, turned)), strict=True)
    for step, of_turned in pairs:
        expected = q @ step @ s.T
        assert reference.distance([of_turned / np.linalg.norm(of_turned)], [expected / np.linalg.norm(step)]) < 1e-4


@pytest.mark.parametrize("factor", [2.0**-20, 2.0**40])
def test_steps_do_not_know_the_size_of_the_gradients(factor: float) -> None:
    gradients = drawn([(6, 8)], 5)
    scaled = [[g * np.float32(factor) for g in each] for each in gradients]
    path, of_scaled = (steps(trained([np.zeros((6, 8))], each, eps=1e-30)) for each in (gradients, scaled))
    assert reference.distance(of_scaled, path) < 1e-5


def test_a_gradient_of_zeros_moves_nothing_and_stays_finite() -> None:
    path = trained([np.ones((2, 3))], [[np.zeros((2, 3), np.float32)]] * 2)
    np.testing.assert_array_equal(path[-1], path[0])


def test_it_is_adamw_until_the_first_roots(job, patches, tiny) -> None:
    def weights(*overrides: str) -> list[Arrays]:
        parts = job(*COMMON, "train.batch_size=32", "optimizer.lr=0.01", *overrides, network=tiny())
        windows = parts.windows(patches, 256)
        found = []
        for _ in range(6):
            parts.update(next(windows), 0.01)
            found.append(parts.weights())
        return found

    adamw, shampoo = weights("optimizer=adamw"), weights("optimizer=shampoo", "optimizer.interval=5")
    assert max(reference.distance(*pair) for pair in zip(shampoo[:4], adamw[:4], strict=True)) < 1e-6
    assert reference.distance(shampoo[4], adamw[4]) > 1e-4


def test_roots_are_computed_in_every_so_manieth_update() -> None:
    settings = schema.ShampooSettings("shampoo", lr=RATE, weight_decay=0.0, **{**OWN, "interval": 3})
    optimizer = optimizers.build([Parameter(np.zeros((2, 3), np.float32), name="w")], settings)
    changed, before = [], optimizer.roots[1].asnumpy().copy()
    for gradients in drawn([(2, 3)], 7):
        optimizer(tuple(map(Tensor, gradients)))
        after = optimizer.roots[1].asnumpy().copy()
        changed.append(bool((after != before).any()))
        before = after
    assert changed == [False, False, True, False, False, True, False]


def test_long_axes_and_vectors_have_no_preconditioner(job) -> None:
    optimizer = job("model=lenet", *COMMON, "optimizer=shampoo", "optimizer.max_size=120").optimizer
    sizes = {p.name: len(p) for p in optimizer.products}
    assert sizes == {
        "left.conv1.weight": 6, "right.conv1.weight": 25, "left.conv2.weight": 16, "left.fc1.weight": 120,
        "left.fc2.weight": 84, "right.fc2.weight": 120, "left.fc3.weight": 10, "right.fc3.weight": 84,
    }  # fmt: skip
    assert [p.name for p in optimizer.roots] == [f"root.{name}" for name in sizes]


def test_a_device_without_eigenvalues_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ms, "get_context", {"device_target": "Ascend"}.get)
    with pytest.raises(ConfigError, match=r"on CPUs and GPUs alone; write optimizer=muon\.$"):
        trained([np.zeros((2, 3))], [])


def test_a_job_that_ends_before_the_first_roots_is_refused() -> None:
    stages = ["model=lenet", "data=synthetic", "data.train_size=320", "optimizer=shampoo", "train.epochs=2"]
    with pytest.raises(ConfigError, match=r"optimizer.interval=100 leaves all 20 .*; write optimizer.interval=2\.$"):
        build_job(*stages)
    assert build_job(*stages, "optimizer.interval=20").stages


def test_a_network_without_a_short_axis_is_refused(job, tiny) -> None:
    with pytest.raises(ConfigError, match=r"optimizer.max_size=3 finds no matrix .*; write optimizer=adamw\.$"):
        job(*COMMON, "optimizer=shampoo", "optimizer.max_size=3", network=tiny())
