"""Virtual ranks with the mean: the same update as one rank with the whole global batch."""

from itertools import islice, pairwise

import numpy as np
import pytest

from tests import reference
from tests.conftest import assert_same_bits

pytestmark = pytest.mark.usefixtures("graph_mode")

RATE = 0.01


def loss(signals) -> float:
    """Mean over the samples of one update."""
    losses = [float(measured.asnumpy()[0]) for measured in signals.measured]
    return float(np.average(losses, weights=signals.samples))


# In the short last update of 552 samples of MNIST, the ranks have 32, 8, 0 and 0; of 616, 32, 32, 32 and 8.
SPLITS = {
    "4 ranks": (("device=cpu4",), 552),
    "4 ranks, the last with less": (("device=cpu4",), 616),
    "4 ranks with windows of 2": (("device=cpu4", "accel=accum", "accel.accum.steps=2", "train.batch_size=16"), 552),
}


@pytest.mark.slow
@pytest.mark.parametrize(("overrides", "samples"), SPLITS.values(), ids=SPLITS)
def test_ranks_of_32_are_one_rank_of_128(job, digits, overrides: tuple[str, ...], samples: int) -> None:
    split, decay = digits("lenet").train, "optimizer.weight_decay=5e-4"
    ranks, one = job(*overrides, decay), job("train.batch_size=128", decay)
    before, signals = one.weights(), []
    for each in (ranks, one):
        signals.append([each.update(windows, RATE) for windows in islice(each.windows(split, samples), 20)])
    for found, expected in zip(*signals, strict=True):
        assert sum(found.samples) == sum(expected.samples) in (128, samples % 128)
        assert loss(found) == pytest.approx(loss(expected), rel=1e-5)
        np.testing.assert_allclose(found.outcome.asnumpy()[-6:-4], expected.outcome.asnumpy()[-6:-4], rtol=1e-4)
    assert sum(signals[0][4].samples) < 128, "a short one among them"
    assert reference.distance(ranks.weights(), one.weights()) <= 1e-5
    assert reference.distance(before, one.weights()) >= 1e-3


@pytest.mark.parametrize("sizes", [(8, 8, 3, 0), (8, 0, 0, 0), (1, 8, 0, 2)])
def test_shares_are_weighted_by_their_samples(job, tiny, patches, sizes: tuple[int, ...]) -> None:
    parts = job("device=cpu4", "train.batch_size=8", "optimizer.momentum=0", network=tiny())
    edges = pairwise(np.cumsum([0, *sizes]))
    ranks = [[patches.batch(np.arange(first, end))] if first < end else [] for first, end in edges]
    before = parts.weights()
    signals = parts.update(ranks, 0.5)
    gradients = reference.mlp_gradients(before, *patches.batch(np.arange(sum(sizes))))
    assert signals.samples == tuple(size for size in sizes if size)
    assert reference.distance([m.asnumpy() for m in parts.optimizer.moments], gradients) <= 1e-6
    after = [w - 0.5 * g for w, g in zip(before, gradients, strict=True)]
    assert reference.distance(parts.weights(), after) <= 1e-7


@pytest.mark.slow
def test_ranks_and_windows_that_split_alike_have_the_same_bits(job, tiny, patches) -> None:
    ways = (("device=cpu4",), ("accel=accum", "accel.accum.steps=4"), ("device=cpu2x2",))
    states = []
    for way in ways:
        parts = job("train.batch_size=8", "optimizer=adam", *way, network=tiny())
        for windows in islice(parts.windows(patches, 115), 6):
            parts.update(windows, RATE)
        states.append(parts.state())
    assert_same_bits(states[1], states[0])
    assert_same_bits(states[2], states[0])
