"""SAM against float64, over windows and ranks, with batch norm, and where a gradient is not finite."""

import mindspore as ms
import numpy as np
import pytest
from mindspore import Tensor

from tests import reference
from tests.conftest import assert_same_bits

COMMON = ("data=synthetic", "optimizer=momentum", "tracking.uri=sqlite:///none")
RHO, RATE = 0.5, 0.1


def weights_after(job, tiny, patches, updates: int, *overrides: str) -> tuple[list[list[np.ndarray]], list]:
    """The weights before and after each update, and the samples of each."""
    parts = job(*COMMON, f"accel.sam.rho={RHO}", *overrides, network=tiny())
    windows = parts.windows(patches, 96)
    weights, batches = [parts.weights()], []
    for _ in range(updates):
        window = next(windows)
        parts.update(window, RATE)
        weights.append(parts.weights())
        batches.append([np.concatenate(arrays) for arrays in zip(*(b for rank in window for b in rank), strict=True)])
    return weights, batches


def at_the_peak(weights: list[np.ndarray], images: np.ndarray, labels: np.ndarray) -> list[np.ndarray]:
    gradients = reference.mlp_gradients(weights, images, labels)
    share = RHO / reference.norm(gradients)
    return reference.mlp_gradients([w + share * g for w, g in zip(weights, gradients, strict=True)], images, labels)


def test_twenty_updates_are_those_of_float64(job, tiny, patches) -> None:
    found, batches = weights_after(job, tiny, patches, 20, "accel=sam", "train.batch_size=32")
    weights = [w.astype(float) for w in found[0]]
    velocity = [np.zeros_like(w) for w in weights]
    for images, labels in batches:
        gradients = at_the_peak(weights, images, labels)
        velocity = [0.9 * v + g for v, g in zip(velocity, gradients, strict=True)]
        weights = [w - RATE * v for w, v in zip(weights, velocity, strict=True)]
    assert reference.distance(found[-1], weights) < 1e-5
    plain, _ = weights_after(job, tiny, patches, 20, "accel=[sam,clip]", "accel.sam.rho=1e-6", "train.batch_size=32")
    assert reference.distance(found[-1], plain[-1]) > 1e-2, "otherwise it went nowhere else"


@pytest.mark.slow
@pytest.mark.parametrize(
    "overrides",
    [
        ("accel=[sam,accum]", "accel.accum.steps=4", "train.batch_size=8"),
        ("accel=sam", "device=cpu4", "train.batch_size=8"),
        ("accel=[sam,accum]", "accel.accum.steps=2", "device=cpu4", "device.ranks_per_server=2", "train.batch_size=8"),
    ],
    ids=["window", "ranks", "both"],
)
def test_windows_and_ranks_are_the_big_batch(job, tiny, patches, overrides) -> None:
    big, _ = weights_after(job, tiny, patches, 6, "accel=sam", "train.batch_size=32")
    found, _ = weights_after(job, tiny, patches, 6, *overrides)
    assert reference.distance(found[-1], big[-1]) < 1e-5


def test_the_second_pass_is_counted_and_leaves_statistics_alone(job, digits) -> None:
    from mindspore import nn

    def network() -> nn.Cell:
        return nn.SequentialCell(nn.Flatten(), nn.Dense(784, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Dense(16, 10))

    split, statistics = digits("mlp").train, []
    for accel in ("none", "sam"):
        parts = job(*COMMON, "model=mlp", f"accel={accel}", "train.batch_size=32", network=network())
        parts.update(next(parts.windows(split, 96)), 0.0)
        statistics.append({p.name: p.asnumpy() for p in parts.network.untrainable_params()})
        assert parts.update.extra_forwards == (96 if accel == "sam" else 0)
    plain, twice = statistics
    assert np.abs(plain["2.moving_mean"]).max() > 0
    assert_same_bits(twice, plain)


def test_an_overflow_that_a_relu_hides_from_the_second_pass_is_seen(job, tiny, patches) -> None:
    """A weight of NaN behind a ReLU leaves a gradient that is finite: relu(NaN) may be 0, with gradient 0."""
    parts = job(*COMMON, "accel=sam", "train.batch_size=32", "train.on_nonfinite=skip", network=tiny())
    (window,) = next(parts.windows(patches, 96))
    parts.update.window_gradient = lambda factor: (*parts.optimizer.parameters, Tensor(np.inf, ms.float32))
    before = parts.training()
    assert parts.update([window], RATE).fetch().applied == 0
    assert_same_bits(parts.training(), before)


def test_where_the_gradient_is_not_finite_nothing_moves(job, tiny, patches) -> None:
    parts = job(*COMMON, "accel=sam", "train.batch_size=32", "train.on_nonfinite=skip", network=tiny())
    windows = parts.windows(patches, 96)
    parts.update(next(windows), RATE)
    before = parts.training()
    ((images, labels),) = next(windows)[0]
    signals = parts.update([[(np.full_like(images, np.inf), labels)]], RATE)
    assert signals.fetch().applied == 0
    assert_same_bits(parts.training(), before)
    parts.update(next(windows), RATE)
    assert all(np.isfinite(w).all() for w in parts.weights())
