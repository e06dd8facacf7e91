"""PowerSGD against float64: whole trainings, single sums, and what a bad gradient leaves alone."""

import re
from collections.abc import Sequence
from itertools import islice

import mindspore as ms
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from mindspore import Parameter, Tensor, nn

from msaccel.accel.powersgd.low_rank import LowRankSum
from msaccel.checkpoint.state import set_values
from msaccel.errors import ConfigError
from msaccel.kernels.graph import Graph
from tests import reference
from tests.conftest import assert_same_bits

pytestmark = pytest.mark.usefixtures("graph_mode")

RATE, UPDATES = 0.1, 20
COMMON = ("data=synthetic", "tracking.uri=sqlite:///none", "device=cpu4", "train.batch_size=8")
POWER = ("accel=powersgd", "accel.powersgd.rank=2")
Arrays = list[np.ndarray]


def gram_schmidt(matrix: np.ndarray) -> np.ndarray:
    """As the paper orthogonalises: column by column."""
    columns: Arrays = []
    for column in matrix.T:
        for _ in range(2):
            for known in columns:
                column = column - (known @ column) * known
        columns.append(column / np.linalg.norm(column))
    return np.stack(columns, 1)


class PaperSum:
    """Algorithms 1 and 2 of the paper, in its own terms: every rank has a gradient and a memory, and sums are means.

    Q is not orthogonalised. A rank's gradient is that of its samples times R n_i / n: the mean over ranks is that over
    samples.
    """

    def __init__(self, weights: Arrays, firsts: dict[int, np.ndarray], ranks: int) -> None:
        self.q = {place: np.asarray(first, float) for place, first in firsts.items()}
        self.memories = [[np.zeros(w.shape) for w in weights] for _ in range(ranks)]

    def __call__(self, gradients: Sequence[Arrays]) -> Arrays:
        sums: Arrays = []
        for place, own in enumerate(zip(*gradients, strict=True)):
            if place not in self.q:
                sums.append(np.mean(own, 0))
                continue
            deltas = [(g + e[place]).reshape(len(g), -1) for g, e in zip(own, self.memories, strict=True)]
            p = gram_schmidt(np.mean([delta @ self.q[place] for delta in deltas], 0))
            self.q[place] = np.mean([delta.T @ p for delta in deltas], 0)
            update = p @ self.q[place].T
            for memory, delta in zip(self.memories, deltas, strict=True):
                memory[place] = (delta - update).reshape(memory[place].shape)
            sums.append(update.reshape(own[0].shape))
        return sums


def gradients_of(weights: Arrays, update: list) -> list[Arrays]:
    """The gradient of each rank, weighted so that their mean is that over all samples; 0 of a rank without any."""
    total = sum(len(labels) for window in update for _, labels in window)
    found = []
    for window in update:
        own = [np.zeros(w.shape) for w in weights]
        if window:
            images, labels = (np.concatenate(arrays) for arrays in zip(*window, strict=True))
            share = len(update) * len(labels) / total
            own = [share * g for g in reference.mlp_gradients(weights, images, labels)]
        found.append(own)
    return found


def memory(parts, kind: str) -> dict[int, np.ndarray]:
    """Errors or directions, by the position of the weight."""
    held, prefix = parts.update.state_dict(), f"powersgd.{kind}."
    names = [f"{prefix}{weight.name}" for weight in parts.network.trainable_params()]
    return {place: held[name].asnumpy().copy() for place, name in enumerate(names) if name in held}


def in_numpy(weights: Arrays, firsts: dict[int, np.ndarray], windows: list, *, start: int = 0, bound: float = 1e30):
    """The weights after these updates with momentum 0.9, and the sum of all memories."""
    paper = PaperSum(weights, firsts, 4)
    weights, velocity = [np.asarray(w, float) for w in weights], [np.zeros(w.shape) for w in weights]
    for number, update in enumerate(windows):
        gradients = gradients_of(weights, update)
        gradient = paper(gradients) if number >= start else [np.mean(own, 0) for own in zip(*gradients, strict=True)]
        velocity = [0.9 * v + g for v, g in zip(velocity, reference.clip(gradient, bound), strict=True)]
        weights = [w - RATE * v for w, v in zip(weights, velocity, strict=True)]
    return weights, [np.mean(own, 0) for own in zip(*paper.memories, strict=True)]


def trained(job, tiny, patches, *overrides: str, samples: int = 96):
    """A job after its updates, the weights and directions before, and the windows."""
    parts = job(*COMMON, *overrides, network=tiny(), updates=UPDATES)
    before, firsts = parts.weights(), memory(parts, "q")
    windows = list(islice(parts.windows(patches, samples), UPDATES))
    for window in windows:
        parts.update(window, RATE)
    return parts, before, firsts, windows


CASES = {
    "rank 1": (("accel.powersgd.rank=1",), {}, 96),
    "rank 2": ((), {}, 96),
    "after a start": (("accel.powersgd.start=10",), {"start": 10}, 96),
    "clipped": (("accel=[powersgd,clip]", "accel.clip.max_norm=0.3"), {"bound": 0.3}, 96),
    "windows, and ranks without samples": (
        ("accel=[powersgd,accum]", "accel.accum.steps=2", "train.batch_size=4"), {}, 76
    ),
}  # fmt: skip


@pytest.mark.parametrize(("overrides", "known", "samples"), CASES.values(), ids=CASES)
def test_twenty_updates_are_those_of_the_paper(job, tiny, patches, overrides, known, samples) -> None:
    """Where each rank has a memory of its own; here a single one holds their sum."""
    parts, before, firsts, windows = trained(job, tiny, patches, *POWER, *overrides, samples=samples)
    assert any(not window for update in windows for window in update) == (samples == 76)
    expected, memories = in_numpy(before, firsts, windows, **known)
    assert reference.distance(parts.weights(), expected) < 1e-5
    errors = memory(parts, "error")
    assert len(errors) == 2, "both matrices"
    for place, error in errors.items():
        # What is left over is a small difference of large numbers, so rounding shows more than in the weights.
        assert reference.distance([error], [memories[place]]) < 5e-3
        assert np.linalg.norm(error) > 0.01, "otherwise nothing was left out"


@pytest.mark.slow
@pytest.mark.usefixtures("choice")
def test_it_does_not_matter_which_kernels_compute(job, tiny, patches) -> None:
    parts, before, firsts, windows = trained(job, tiny, patches, *POWER)
    assert reference.distance(parts.weights(), in_numpy(before, firsts, windows)[0]) < 1e-5


def test_where_the_rank_is_enough_it_is_the_mean_over_samples(job, tiny, patches) -> None:
    """A gradient of two samples has at most rank 2, whichever ranks have them, and random directions see all of it."""
    owners = np.random.default_rng(0).integers(0, 4, (UPDATES, 2))
    weights = []
    for overrides in (POWER, ("accel=none",)):
        parts = job(*COMMON, *overrides, network=tiny(), updates=UPDATES)
        first = {name: p for name, p in parts.update.state_dict().items() if name.startswith("powersgd.")}
        values = {name: p.asnumpy().copy() for name, p in first.items()}
        for number, own in enumerate(owners):
            set_values(first.values(), values)
            samples = [[2 * number + place for place in range(2) if own[place] == rank] for rank in range(4)]
            parts.update([[patches.batch(np.array(each))] if each else [] for each in samples], RATE)
        weights.append(parts.weights())
    assert reference.distance(*weights) < 1e-5


class Summed(Graph):
    def __init__(self, low_rank: LowRankSum) -> None:
        super().__init__()
        self.low_rank = low_rank

    def construct(self, *gradients: Tensor) -> tuple[Tensor, ...]:
        sums, errors, directions = self.low_rank(gradients)
        return (*sums, *errors, *directions)


@pytest.fixture(scope="module")
def low_rank(graph_mode: None):
    """Sums a matrix, a convolution's weights and a vector, from the same first directions each time."""
    shapes = [(6, 10), (3,), (5, 2, 3, 2)]
    weights = [Parameter(Tensor(np.zeros(shape, np.float32)), name=f"w{n}") for n, shape in enumerate(shapes)]
    cell = Summed(LowRankSum(weights, rank=2, seed=0, reduction=None, processes=1))

    def summed(*gradients: np.ndarray) -> tuple[Arrays, Arrays, Arrays]:
        found = [tensor.asnumpy() for tensor in cell(*(Tensor(gradient, ms.float32) for gradient in gradients))]
        return found[:3], found[3:5], found[5:]

    return summed


def drawn(seed: int, rank: int, scale: float = 1.0) -> Arrays:
    """Gradients whose matrices have this rank; some of their rows and columns are zero."""
    rng = np.random.default_rng(seed)
    first, second = ((rng.standard_normal((n, rank)), rng.standard_normal((rank, m))) for n, m in ((6, 10), (5, 12)))
    matrices = [(left * (rng.random((len(left), 1)) < 0.7)) @ right for left, right in (first, second)]
    return [scale * g for g in (matrices[0], rng.standard_normal(3), matrices[1].reshape(5, 2, 3, 2))]


@settings(max_examples=25)
@given(st.integers(0, 2**32), st.integers(1, 5), st.floats(1e-6, 1e6))
def test_a_sum_is_a_projection(low_rank, seed: int, rank: int, scale: float) -> None:
    """It is exact for what has rank 2 or less, homogeneous, and what it leaves out is orthogonal to it."""
    gradients = drawn(seed, rank)
    sums, errors, directions = low_rank(*gradients)
    np.testing.assert_array_equal(sums[1], gradients[1].astype(np.float32))
    for found, error, gradient in ((sums[0], errors[0], gradients[0]), (sums[2], errors[1], gradients[2])):
        size = max(np.linalg.norm(gradient), 1e-30)
        assert found.shape == gradient.shape
        assert np.linalg.norm(found + error.reshape(found.shape) - gradient) < 1e-5 * size
        assert abs(np.sum(found * error.reshape(found.shape))) < 1e-5 * size**2
        assert np.linalg.norm(error) < (1e-5 if rank <= 2 else 1) * size
    for q in directions:
        np.testing.assert_allclose(q.T @ q, np.eye(2), atol=1e-5)
    times, *_ = low_rank(*(scale * gradient for gradient in gradients))
    for found, expected in zip(times, sums, strict=True):
        assert np.linalg.norm(found - scale * expected) <= 1e-4 * scale * max(np.linalg.norm(expected), 1e-30)


def test_a_gradient_of_zeros_leaves_the_directions_where_they_are(low_rank) -> None:
    """As that of a layer behind zeros. Unit vectors, which reflections would give, may see nothing of the next one."""
    shapes = [(6, 10), (3,), (5, 2, 3, 2)]
    sums, errors, directions = low_rank(*map(np.zeros, shapes))
    assert not any(array.any() for array in (*sums, *errors))
    for q, shape in zip(directions, (10, 12), strict=True):
        assert q.shape == (shape, 2) and np.abs(q).min() > 1e-3


def test_an_update_that_is_skipped_leaves_memory_and_directions_alone(job, tiny, patches) -> None:
    scaled = ("loss_scale.mode=dynamic", "loss_scale.init=1024")
    parts = job(*COMMON, *POWER, *scaled, network=tiny(), updates=UPDATES)
    windows = parts.windows(patches, 96)
    parts.update(next(windows), RATE)
    before = parts.training()
    update = next(windows)
    ((images, labels),) = update[2]
    update[2] = [(np.full_like(images, np.inf), labels)]
    outcome = parts.update(update, RATE).fetch()
    assert (outcome.applied, outcome.consecutive_skips, outcome.loss_scale) == (0, 1, 1024)
    after = parts.training()
    assert before.pop("powersgd.updates") + 1 == after.pop("powersgd.updates")
    assert_same_bits(after, before)
    outcome = parts.update(next(windows), RATE).fetch()
    assert (outcome.applied, outcome.consecutive_skips, outcome.loss_scale) == (1, 0, 512)
    assert all(np.isfinite(array).all() for array in parts.training().values())


def test_errors_do_not_depend_on_the_loss_scale(job, tiny, patches) -> None:
    """It doubles after every second update; powers of two leave the bits alone."""
    states = []
    for overrides in ((), ("loss_scale.mode=dynamic", "loss_scale.init=64", "loss_scale.growth_interval=2")):
        parts, *_ = trained(job, tiny, patches, *POWER, *overrides)
        states.append(parts.training())
    assert_same_bits(*states)


@pytest.mark.parametrize(
    ("setting", "sentence"),
    [
        ("rank=5", "rank=5 makes no gradient of this network smaller; write accel.powersgd.rank=4 or less."),
        ("start=20", "start=20 leaves none of the 20 updates to compress; write accel.powersgd.start=19 or less."),
    ],
)
def test_what_would_compress_nothing_is_refused(job, tiny, setting: str, sentence: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(f"accel.powersgd.{sentence}")):
        job(*COMMON, *POWER, f"accel.powersgd.{setting}", network=tiny(), updates=UPDATES)


def test_a_network_without_a_matrix_that_can_be_smaller_is_refused(job) -> None:
    network = nn.SequentialCell(nn.Flatten(), nn.Dense(2, 2))
    with pytest.raises(ConfigError, match=r"accel=powersgd has no matrix to make smaller in this network; write acc"):
        job(*COMMON, "accel=powersgd", network=network)
