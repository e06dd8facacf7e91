"""Local SGD against float64, over windows and short updates; what an evaluation and a bad gradient leave alone."""

import re
from collections.abc import Sequence
from itertools import islice

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from mindspore import nn

from msaccel.accel import updates_within
from msaccel.accel.localsgd.ranks import moments
from msaccel.errors import ConfigError
from tests import reference
from tests.conftest import assert_same_bits
from tests.training import recursions

RATE, UPDATES = 0.1, 20
COMMON = ("data=synthetic", "tracking.uri=sqlite:///none", "device=cpu4", "train.batch_size=8")
MEAN = ("accel=none",)
LOCAL = ("accel=localsgd", "accel.localsgd.every=3")
Arrays = list[np.ndarray]


class Momentum:
    """One rank's optimizer. `moments` is what local SGD may average."""

    def __init__(self, weights: Arrays) -> None:
        self.moments = [[np.zeros_like(w) for w in weights]]

    def __call__(self, weights: Arrays, gradients: Arrays) -> Arrays:
        self.moments[0] = [0.9 * v + g for v, g in zip(self.moments[0], gradients, strict=True)]
        return [w - RATE * v for w, v in zip(weights, self.moments[0], strict=True)]


class Adam:
    def __init__(self, weights: Arrays) -> None:
        self.moments, self.steps = [[np.zeros_like(w) for w in weights] for _ in range(2)], 0

    def __call__(self, weights: Arrays, gradients: Arrays) -> Arrays:
        self.steps += 1
        m, v = self.moments
        m = [0.9 * a + 0.1 * g for a, g in zip(m, gradients, strict=True)]
        v = [0.999 * a + 0.001 * g * g for a, g in zip(v, gradients, strict=True)]
        self.moments = [m, v]
        factor = RATE * np.sqrt(1 - 0.999**self.steps) / (1 - 0.9**self.steps)
        return [w - factor * a / (np.sqrt(b) + 1e-8) for w, a, b in zip(weights, m, v, strict=True)]


class Shampoo:
    """Each rank has preconditioners of its own."""

    moments = ()

    def __init__(self, weights: Arrays) -> None:
        own = {"beta1": 0.9, "beta2": 0.999, "eps": 1e-8, "ridge": 0.01, "interval": 2, "max_size": 1024}
        self.walk = recursions.shampoo(weights, [0.0] * len(weights), **own)
        next(self.walk)

    def __call__(self, weights: Arrays, gradients: Arrays) -> Arrays:
        return self.walk.send((weights, gradients, RATE))


def mean(ranks: Sequence[Arrays]) -> Arrays:
    return [np.mean(values, axis=0) for values in zip(*ranks, strict=True)]


def gradient(weights: Arrays, window: list) -> Arrays:
    images, labels = (np.concatenate(arrays) for arrays in zip(*window, strict=True))
    return reference.mlp_gradients(weights, images, labels)


def in_numpy(
    weights: Arrays,
    windows: list,
    *,
    every: int,
    first: int = 0,
    average: bool = False,
    bound: float = 1e30,
    kind: type = Momentum,
) -> tuple[Arrays, float]:
    """The mean of all ranks' weights after these updates, and how far the ranks were apart before it."""
    ranks = [[np.asarray(w, float) for w in weights]] * 4
    optimizers = [kind(rank) for rank in ranks]
    for number, update in enumerate(windows):
        if number < first:
            both = reference.clip(gradient(ranks[0], [pair for window in update for pair in window]), bound)
            ranks = [step(rank, both) for step, rank in zip(optimizers, ranks, strict=True)]
            continue
        for r, window in enumerate(update):
            if window:
                ranks[r] = optimizers[r](ranks[r], reference.clip(gradient(ranks[r], window), bound))
        if (number - first + 1) % every == 0:
            ranks = [mean(ranks)] * 4
            for m in range(len(optimizers[0].moments) if average else 0):
                common = mean([optimizer.moments[m] for optimizer in optimizers])
                for optimizer in optimizers:
                    optimizer.moments[m] = common
    return mean(ranks), reference.distance(ranks[0], ranks[1])


def trained(job, tiny, patches, *overrides: str, samples: int = 96):
    """A job after its updates, the weights before and the windows."""
    parts = job(*COMMON, *overrides, network=tiny(), updates=UPDATES)
    before, windows = parts.weights(), list(islice(parts.windows(patches, samples), UPDATES))
    signals = [parts.update(window, RATE) for window in windows]
    return parts, before, windows, signals


def averaged(parts) -> Arrays:
    with parts.update.averaged():
        return parts.weights()


CASES = {
    "local": ((), {}, 96),
    "post-local": (("accel.localsgd.start=0.5",), {"first": 10}, 96),
    "averaged momentum": (("accel.localsgd.state=average",), {"average": True}, 96),
    "adam": (("optimizer=adam",), {"kind": Adam}, 96),
    "averaged moments": (("optimizer=adam", "accel.localsgd.state=average"), {"kind": Adam, "average": True}, 96),
    "shampoo": (
        ("optimizer=shampoo", "optimizer.weight_decay=0", "optimizer.interval=2", "optimizer.ridge=0.01"),
        {"kind": Shampoo}, 96,
    ),
    "windows, and ranks without samples": (
        ("accel=[localsgd,accum]", "accel.accum.steps=2", "train.batch_size=4"), {}, 76
    ),
}  # fmt: skip
SELDOM = ("adam", "shampoo")  # averaged moments have all kinds of state, too


def assert_those_of_float64(job, tiny, patches, *overrides: str, samples: int = 96, **settings: object) -> None:
    parts, before, windows, _ = trained(job, tiny, patches, *LOCAL, *overrides, samples=samples)
    assert any(not window for update in windows for window in update) == (samples == 76)
    expected, apart = in_numpy(before, windows, every=3, **settings)
    assert reference.distance(averaged(parts), expected) < 1e-5
    assert apart > 1e-2, "the ranks have gone their own ways since the last average"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("overrides", "settings", "samples"),
    [pytest.param(*CASES[name], id=name, marks=pytest.mark.soak if name in SELDOM else ()) for name in CASES],
)
def test_twenty_updates_are_those_of_float64(job, tiny, patches, overrides, settings, samples) -> None:
    assert_those_of_float64(job, tiny, patches, *overrides, samples=samples, **settings)


@pytest.mark.parametrize(
    ("optimizer", "many"),  # MindSpore's SGD keeps two for momentum even without it
    {"sgd": 2, "momentum": 1, "adam": 2, "adamw": 2, "lars": 1, "lamb": 2, "lion": 1, "shampoo": 2}.items(),
)
def test_all_that_an_optimizer_keeps_for_each_weight_is_found(job, tiny, optimizer, many) -> None:
    parts = job(*COMMON, f"optimizer={optimizer}", network=tiny())
    found = moments(parts.optimizer)
    assert len(found) == many
    assert all([m.shape for m in group] == [w.shape for w in parts.optimizer.parameters] for group in found)


def test_what_has_other_shapes_than_the_weights_is_no_moment(job) -> None:
    """With a single weight there is an entry for every weight of Shampoo's preconditioners, too."""
    parts = job(*COMMON, "optimizer=shampoo", network=nn.SequentialCell(nn.Flatten(), nn.Dense(12, 4, has_bias=False)))
    assert [m.name for group in moments(parts.optimizer) for m in group] == ["moment1.1.weight", "moment2.1.weight"]


@pytest.mark.slow
@pytest.mark.usefixtures("choice")
def test_each_rank_clips_its_own_gradient_after_the_mean_was_clipped(job, tiny, patches) -> None:
    overrides = ("accel=[localsgd,clip]", "accel.clip.max_norm=0.5", "accel.localsgd.start=0.35")
    assert_those_of_float64(job, tiny, patches, *overrides, bound=0.5, first=7)


def test_an_average_after_every_update_is_the_mean_of_gradients(job, tiny, patches) -> None:
    """With momentum, too, which is linear in the gradients."""
    plain, *_ = trained(job, tiny, patches, *MEAN)
    found, *_ = trained(job, tiny, patches, *LOCAL, "accel.localsgd.every=1")
    assert reference.distance(averaged(found), plain.weights()) < 1e-5


def test_the_first_updates_of_post_local_sgd_have_the_bits_of_the_mean(job, tiny, patches) -> None:
    plain, *_ = trained(job, tiny, patches, *MEAN)
    first = job(*COMMON, *LOCAL, "accel.localsgd.start=0.5", network=tiny(), updates=2 * UPDATES)
    for window in islice(first.windows(patches, 96), UPDATES):
        first.update(window, RATE)
    assert_same_bits(dict(enumerate(averaged(first))), dict(enumerate(plain.weights())))


@pytest.mark.slow
def test_an_evaluation_does_not_disturb_the_ranks(job, tiny, patches) -> None:
    left_alone, *_ = trained(job, tiny, patches, *LOCAL)
    looked_at = job(*COMMON, *LOCAL, network=tiny(), updates=UPDATES)
    for window in islice(looked_at.windows(patches, 96), UPDATES):
        averaged(looked_at)
        looked_at.update(window, RATE)
    both = [{n: p.asnumpy() for n, p in each.update.state_dict().items()} for each in (left_alone, looked_at)]
    assert "ranks.0" in both[0] and "ranks.1" in both[0]
    assert_same_bits(*both)


def test_a_rank_whose_gradient_is_not_finite_stops_all_for_that_update(job, tiny, patches) -> None:
    scaled = ("loss_scale.mode=dynamic", "loss_scale.init=1024")
    parts = job(*COMMON, *LOCAL, *scaled, network=tiny(), updates=UPDATES)
    windows = parts.windows(patches, 96)
    parts.update(next(windows), RATE)
    before = averaged(parts)
    update = next(windows)
    ((images, labels),) = update[2]
    update[2] = [(np.full_like(images, np.inf), labels)]
    outcome = parts.update(update, RATE).fetch()
    assert (outcome.applied, outcome.consecutive_skips, outcome.loss_scale) == (0, 1, 1024)
    assert_same_bits(dict(enumerate(averaged(parts))), dict(enumerate(before)))
    outcome = parts.update(next(windows), RATE).fetch()
    assert (outcome.applied, outcome.consecutive_skips, outcome.loss_scale) == (1, 0, 512)
    assert all(np.isfinite(w).all() for w in averaged(parts))


def test_what_is_logged_is_of_all_ranks(job, tiny, patches) -> None:
    bound = 1.0
    overrides = ("accel=[localsgd,clip]", "accel.localsgd.every=3", f"accel.clip.max_norm={bound}")
    _, before, windows, signals = trained(job, tiny, patches, *overrides)
    norms = [reference.norm(gradient(before, window)) for window in windows[0]]
    outcome = signals[0].fetch()
    assert outcome.norm == pytest.approx(np.mean(norms), rel=1e-5)
    assert outcome.norm_max == pytest.approx(max(norms), rel=1e-5)
    assert outcome.clipped == np.mean([norm > bound for norm in norms])
    assert signals[0].samples == (8, 8, 8, 8)


@pytest.mark.parametrize(("every", "start", "left"), [(21, 0, 20), (8, 0.65, 7)])
def test_a_job_too_short_for_an_average_is_refused(job, tiny, every: int, start: float, left: int) -> None:
    overrides = (*COMMON, "accel=localsgd", f"accel.localsgd.every={every}", f"accel.localsgd.start={start}")
    said = (
        f"accel.localsgd.every={every} comes to no average in the {left} updates after accel.localsgd.start={start}; "
    )
    with pytest.raises(ConfigError, match=re.escape(said)):
        job(*overrides, network=tiny())


@given(st.integers(0, 99), st.integers(1, 500))
def test_updates_within_a_fraction_of_the_job(hundredths: int, updates: int) -> None:
    assert updates_within(hundredths / 100, updates) == hundredths * updates // 100


@pytest.mark.slow
def test_ranks_that_never_average_are_jobs_of_their_own(job, digits) -> None:
    """With batch norm: weights and running statistics are the means of two jobs of one rank."""

    def network() -> nn.Cell:
        return nn.SequentialCell(nn.Flatten(), nn.Dense(784, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Dense(16, 10))

    split, common = digits("mlp").train, ("model=mlp", "data=synthetic", "train.batch_size=16")
    two = ("device=cpu4", "device.ranks_per_server=2")
    ranks = job(*common, *two, "accel=localsgd", "accel.localsgd.every=100", network=network(), updates=100)
    windows = list(islice(ranks.windows(split, 256), 6))
    for update in windows:
        ranks.update(update, RATE)
    with ranks.update.averaged(), ranks.update.statistics.averaged():
        found = [parameter.asnumpy().copy() for parameter in ranks.network.get_parameters()]
    alone = []
    for rank in range(2):
        one = job(*common, "accel=none", network=network())
        for update in windows:
            one.update([update[rank]], RATE)
        alone.append([parameter.asnumpy().copy() for parameter in one.network.get_parameters()])
    assert reference.distance(found, mean(alone)) < 1e-5
    assert reference.distance(alone[0], mean(alone)) > 1e-2
