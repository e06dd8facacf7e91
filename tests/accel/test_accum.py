"""Accumulation: a window updates the weights as the big batch does, short windows included."""

import math
from copy import deepcopy
from fractions import Fraction
from itertools import pairwise

import mindspore as ms
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from mindspore import Tensor

from msaccel.accel.accum import METHOD as method
from msaccel.accel.accum import AccumSettings as Accum
from msaccel.config.compose import from_overrides
from msaccel.data.dataset import InMemoryDataset
from msaccel.data.sampler import Sampler
from msaccel.data.synthetic_images import generate
from msaccel.step.update import Update
from msaccel.training.plan import Plan
from tests import reference
from tests.conftest import OPTIMIZERS, Parts, assert_same_bits
from tests.training.test_loop import watch  # noqa: F401

MEAN, SUM = (Accum(steps=4, reduction=reduction, lr_scale="none") for reduction in ("mean", "sum"))

# 3 full windows of 4 × 8 an epoch, then one of 8, 8 and 3
SAMPLES, UPDATES = 115, 20


def train(parts, split, micro_batch: int, steps: int, rate: float) -> list[int]:
    """`UPDATES` updates over the first samples; returns how many each used."""
    order, used = Sampler(SAMPLES, seed=0, micro_batch=micro_batch, steps=steps), []
    while len(used) < UPDATES:
        for (window,) in order.epoch(len(used) // order.updates_per_epoch):
            used.append(sum(parts.step([split.batch(indices) for indices in window], rate).samples))
    return used[:UPDATES]


@pytest.mark.parametrize(("optimizer", "rate", "tolerance"), [("momentum", 0.01, 1e-5), ("adam", 0.001, 1e-4)])
@pytest.mark.parametrize("model", ["mlp", "lenet"])
def test_mean_is_the_big_batch(build, digits, model, optimizer, rate, tolerance) -> None:
    split = digits(model).train
    accumulated, big = build(model, optimizer, 8, MEAN), build(model, optimizer, 32)
    before = big.weights()
    used = train(accumulated, split, 8, 4, rate)
    assert used == train(big, split, 32, 1, rate) == [32, 32, 32, 19] * 5
    assert reference.distance(accumulated.weights(), big.weights()) <= tolerance
    assert reference.distance(before, big.weights()) >= 5e-3


@pytest.mark.slow
@pytest.mark.parametrize(("norm", "is_equal"), [("group", True), pytest.param("batch", False, marks=pytest.mark.soak)])
def test_of_the_norms_only_group_norm_lets_a_window_be_the_big_batch(job, norm: str, is_equal: bool) -> None:
    (images, labels), _ = generate((16, 8), (3, 16, 16), 10, seed=0)
    split = InMemoryDataset(images, labels, np.linspace(-2, 2, 256, dtype=np.float32))
    network = ("model=resnet50", "model.depth=8", "model.image_size=16", f"model.norm={norm}", "data=synthetic")
    moved = []
    for size, accel in ((16, ("accel=none",)), (8, ("accel=accum", "accel.accum.steps=2"))):
        parts = job(*network, f"train.batch_size={size}", *accel)
        before = parts.weights()
        parts.update(next(parts.windows(split, 16)), 0.01)
        moved.append([new - old for new, old in zip(parts.weights(), before, strict=True)])
    distance = reference.distance(*moved)
    assert distance <= 1e-4 if is_equal else distance >= 0.1


@pytest.fixture(scope="module")
def mean(build) -> Parts:
    """Whose weights tests may move."""
    return build("mlp", "plain", 8, MEAN)


@pytest.fixture(scope="module")
def total(build) -> Parts:
    return build("mlp", "plain", 8, SUM)


@pytest.mark.parametrize("reduction", [MEAN, SUM], ids=["mean", "sum"])
def test_gradients_of_windows_follow_the_definition(mean, total, digits, reduction: Accum) -> None:
    parts, first = mean if reduction is MEAN else total, 0
    for sizes in ([8, 8, 8, 8], [8, 8, 3], [3], [8], [8, 3]):
        window = []
        for size in sizes:
            window.append(digits("mlp").train.batch(np.arange(first, first + size)))
            first += size
        before = parts.weights()
        signals = parts.step(window, 0.1)
        divisor = sum(sizes) if reduction is MEAN else 8
        each = [
            [size * g for g in reference.mlp_gradients(before, *part)] for size, part in zip(sizes, window, strict=True)
        ]
        expected = [sum(parts) / divisor for parts in zip(*each, strict=True)]
        assert reference.distance([m.asnumpy() for m in parts.optimizer.moments], expected) <= 1e-5
        after = [w - 0.1 * g for w, g in zip(before, expected, strict=True)]
        assert reference.distance(parts.weights(), after) <= 1e-7
        norm, _, applied, *_ = signals.outcome.asnumpy()
        assert norm == pytest.approx(np.sqrt(sum(np.sum(g**2) for g in expected)), rel=1e-4) and applied == 1
        assert signals.samples == tuple(sizes) and len(signals.measured) == len(sizes)
        for measured, (images, labels) in zip(signals.measured, window, strict=True):
            logits = reference.mlp(before, images)
            loss, right = measured.asnumpy()[:2]
            assert loss == pytest.approx(reference.cross_entropy(logits, labels), rel=1e-6)
            assert right == (logits.argmax(1) == labels).sum()


def gradients(parts, split, sizes: list[int]) -> list[np.ndarray]:
    """What the optimizer is given for the first samples, cut in micro-batches of these sizes."""
    edges = np.cumsum([0, *sizes])
    parts.step([split.batch(np.arange(*edge)) for edge in pairwise(edges)], 0.0)
    return [moment.asnumpy().copy() for moment in parts.optimizer.moments]


def test_sum_is_the_mean_times_the_window_in_micro_batches(mean, total, digits) -> None:
    for weight, other in zip(total.network.trainable_params(), mean.network.trainable_params(), strict=True):
        weight.set_data(Tensor(other.asnumpy()))
    for sizes in ([8, 8, 8, 8], [8, 8, 3], [3]):
        expected = [sum(sizes) / 8 * g for g in gradients(mean, digits("mlp").train, sizes)]
        assert reference.distance(gradients(total, digits("mlp").train, sizes), expected) <= 1e-6


def test_the_big_batch_may_be_cut_anywhere(mean, digits) -> None:
    split = digits("mlp").train
    whole = gradients(mean, split, [16])
    for sizes in ([8, 8], [8, 5, 3], [5, 8, 3]):
        assert reference.distance(gradients(mean, split, sizes), whole) <= 1e-6


def test_a_window_starts_from_nothing(build, digits) -> None:
    """Also after one that broke off before its end."""
    parts, twin = (build("mlp", "adam", 8, MEAN) for _ in range(2))
    images, labels = digits("mlp").train.batch(np.arange(8))
    parts.update.accumulate(Tensor(images), Tensor(labels), Tensor(1.0, ms.float32), Tensor(True))
    for each in (parts, twin):
        each.step([(images, labels)], 0.01)
    assert_same_bits(parts.state(), twin.state())


@pytest.mark.parametrize("accum", [None, MEAN], ids=["none", "accum"])
@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_names_of_all_state_differ(build, optimizer: str, accum: Accum | None) -> None:
    parts = build("lenet", optimizer, 8, accum)
    everything = [
        *parts.network.get_parameters(),
        *parts.optimizer.get_parameters(),
        *parts.update.state_dict().values(),
    ]
    names = {id(parameter): parameter.name for parameter in everything}.values()
    assert len(set(names)) == len(names)


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_accumulation_renames_no_parameter(build, digits, optimizer: str) -> None:
    parts = build("mlp", optimizer, 8, MEAN)
    before, batch = parts.state().keys(), digits("mlp").train.batch(np.arange(8))
    parts.update.compile(*batch)
    parts.step([batch], 0.01)
    assert parts.state().keys() == before == build("mlp", optimizer, 8).state().keys()


@pytest.mark.parametrize(("scale", "factor"), [("none", 1), ("sqrt", 2), ("linear", 4)])
def test_rate_factor(scale: str, factor: float) -> None:
    assert method.rate_factor(Accum(steps=4, reduction="mean", lr_scale=scale)) == factor


@pytest.mark.parametrize("scale", ["sqrt", "linear"])
def test_sum_refuses_a_scaled_rate(scale: str) -> None:
    (sentence,) = method.refusals(Accum(steps=4, reduction="sum", lr_scale=scale), None)
    assert "accel.accum.lr_scale" in sentence and "accel.accum.reduction" in sentence and "\n" not in sentence
    assert not list(method.refusals(Accum(steps=4, reduction="mean", lr_scale=scale), None))
    assert not list(method.refusals(SUM, None))


GROWING = from_overrides(
    ["accel=accum", "accel.accum.steps=2", "accel.accum.growth=3", "data=synthetic", "model=mlp", "train.batch_size=3"]
)


@given(st.lists(st.integers(1, 19), min_size=1, max_size=3, unique=True).map(sorted), st.integers(1, 30))
def test_windows_grow_with_the_epoch_that_begins_when_a_share_is_over(twentieths: list[int], epochs: int) -> None:
    config = deepcopy(GROWING)
    config.accel["accum"].grow_at, config.train.epochs = [n / 20 for n in twentieths], epochs
    windows = [2 * 3 ** sum(Fraction(epoch, epochs) >= Fraction(n, 20) for n in twentieths) for epoch in range(epochs)]
    if len(set(windows)) <= len(twentieths):
        (sentence,) = method.refusals(config.accel["accum"], config)
        advised = sentence.partition("write train.epochs=")[2].partition(" ")[0]
        assert "leaves a window without an epoch" in sentence and int(advised) > epochs
        config.train.epochs = int(advised)
        assert not list(method.refusals(config.accel["accum"], config)), "what is advised works"
        return
    plan = Plan(config, 100)
    assert not list(method.refusals(config.accel["accum"], config))
    assert [budget.sampler.steps for budget in plan.budgets for _ in range(budget.epochs)] == windows
    assert plan.total_updates == sum(math.ceil(100 / (3 * steps)) for steps in windows)
    assert plan.epochs == epochs and plan.total_samples == 100 * epochs
    assert method.steps(config.accel["accum"]) == max(windows)


SCHEDULES = {
    "schedule=linear": lambda epoch: 1 - epoch / 4,
    "schedule=step schedule.unit=epochs schedule.milestones=[1,3] schedule.gamma=0.5": (
        lambda epoch: 0.5 ** ((epoch >= 1) + (epoch >= 3))
    ),
    "schedule=step schedule.unit=fraction schedule.milestones=[0.75] schedule.gamma=0.1": (
        lambda epoch: 0.1 if epoch >= 3 else 1
    ),
}


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_a_job_whose_windows_grow_is_one_of_growing_batches(watch, tiny, patches, monkeypatch, schedule) -> None:  # noqa: F811
    """Momentum, rate and counts go on: two epochs of 5 updates of 8 samples on two ranks, then two of 3 of up to 16."""
    window = ("accel.accum.steps=2", "accel.accum.grow_at=[0.5]", "accel.accum.growth=2", "train.batch_size=2")
    watched = watch(tiny(), "accel=accum", *window, "train.epochs=4", "optimizer.lr=0.1", *schedule.split())
    places: list[tuple[int, int]] = []
    monkeypatch.setattr(Update, "at", lambda update, done, of: places.append((done, of)) or update)
    weights = [weight.asnumpy().astype(float) for weight in watched.network.trainable_params()]
    velocity, rates, used = [np.zeros_like(w) for w in weights], [], []
    for epoch, batch in enumerate((8, 8, 16, 16)):
        order = np.random.default_rng([0, epoch]).permutation(40)
        for number, first in enumerate(range(0, 40, batch)):
            part = order[first : first + batch]
            rates.append(0.1 * SCHEDULES[schedule](epoch + number * batch / (5 * 8 if batch == 8 else 3 * 16)))
            used.append(len(part))
            gradients = reference.mlp_gradients(weights, *patches.batch(part))
            velocity = [0.9 * v + g for v, g in zip(velocity, gradients, strict=True)]
            weights = [w - rates[-1] * v for w, v in zip(weights, velocity, strict=True)]
    watched.training.train()
    trained = [weight.asnumpy() for weight in watched.network.trainable_params()]
    assert reference.distance(trained, weights) <= 1e-5
    assert watched.run.values("lr") == pytest.approx(rates)
    assert watched.run.values("epoch") == pytest.approx(np.cumsum(used) / 40)
    assert watched.run.values("cost/forward_equivalents") == (3 * np.cumsum(used)).tolist()
    assert places == [(done, 16) for done in range(16)] and watched.training.counts.updates == 16
