"""One update: gradients, signals, the guard, and the same bits from the same seed."""

from itertools import islice
from types import SimpleNamespace

import mindspore as ms
import numpy as np
import pytest
from mindspore import Parameter, Tensor

from msaccel.accel.accum import AccumSettings as Accum
from msaccel.data.sampler import Sampler
from msaccel.step.graphs import ApplyGradients
from msaccel.step.loss_scaler import NO_LIMIT, LossScaler, Policy
from msaccel.training import optimizers
from tests import reference
from tests.conftest import DECAY, OPTIMIZERS, assert_same_bits

pytestmark = pytest.mark.usefixtures("graph_mode")

RATES = [0.1, 0.05, 0.2, 0.1, 0.02]
WINDOWS = {"whole": None, "accum": Accum(steps=3, reduction="mean", lr_scale="none")}


def number(value: float) -> Tensor:
    return Tensor(value, ms.float32)


def test_one_update_follows_the_gradient(build, digits) -> None:
    parts = build("mlp", "plain", 16)
    for size in (16, 5):
        before = parts.weights()
        images, labels = digits("mlp").train.batch(np.arange(size))
        signals = parts.step([(images, labels)], 0.5)
        logits, gradients = reference.mlp(before, images), reference.mlp_gradients(before, images, labels)
        loss, right, norm, _, applied, *_ = signals.outcome.asnumpy()
        assert signals.samples == (size,) and signals.measured[0] is signals.outcome
        assert loss == pytest.approx(reference.cross_entropy(logits, labels), rel=1e-6)
        assert right == (logits.argmax(1) == labels).sum() and applied == 1
        assert norm == pytest.approx(np.sqrt(sum(np.sum(g**2) for g in gradients)), rel=1e-4)
        assert reference.distance([m.asnumpy() for m in parts.optimizer.moments], gradients) <= 1e-5
        after = [w - 0.5 * g for w, g in zip(before, gradients, strict=True)]
        assert reference.distance(parts.weights(), after) <= 1e-7


def test_five_updates_with_momentum_decay_and_changing_rates(build, digits) -> None:
    parts = build("mlp", "momentum", 16)
    weights = [np.asarray(w, float) for w in parts.weights()]
    velocities = [np.zeros_like(w) for w in weights]
    for update, rate in enumerate(RATES):
        images, labels = digits("mlp").train.batch(np.arange(16 * update, 16 * (update + 1)))
        parts.step([(images, labels)], rate)
        for i, g in enumerate(reference.mlp_gradients(weights, images, labels)):
            velocities[i] = 0.9 * velocities[i] + g + DECAY * weights[i]
        weights = [w - rate * v for w, v in zip(weights, velocities, strict=True)]
    assert reference.distance(parts.weights(), weights) <= 1e-6


def test_loss_of_a_sample_that_is_far_off(build, digits) -> None:
    parts = build("mlp", "plain", 8)
    last = parts.network.trainable_params()[-2]
    last.set_data(Tensor(2000 * last.asnumpy()))
    before, (images, labels) = parts.weights(), digits("mlp").train.batch(np.arange(8))
    expected = reference.cross_entropy(reference.mlp(before, images), labels)
    assert expected > 100
    assert parts.step([(images, labels)], 0.0).outcome.asnumpy()[0] == pytest.approx(expected, rel=1e-5)


def test_compiling_changes_nothing(build, digits) -> None:
    for accum in WINDOWS.values():
        parts = build("mlp", "adam", 8, accum)
        before = parts.state()
        parts.update.compile(*digits("mlp").train.batch(np.arange(8)))
        assert_same_bits(parts.state(), before)


@pytest.mark.parametrize(("ranks", "built"), [(1, 0), (4, 1)])
def test_a_rank_among_others_is_ready_to_have_no_samples(build, digits, ranks: int, built: int) -> None:
    update = build("mlp", "plain", 8, WINDOWS["accum"]).update
    update.statistics.comm = SimpleNamespace(world_size=ranks)
    update.compile(*digits("mlp").train.batch(np.arange(8)))
    assert len(update.clear.compile_cache) == built


class Small:
    """Apply on two small tensors."""

    def __init__(self, optimizer: str, scaled: bool = False, on_nonfinite: str = "stop") -> None:
        draw = np.random.default_rng(0).standard_normal
        weights = [Parameter(Tensor(draw(shape), ms.float32), name=f"w{shape}") for shape in ((3, 4), (5,))]
        self.good = [draw(w.shape).astype(np.float32) for w in weights]
        self.optimizer = optimizers.build(weights, OPTIMIZERS[optimizer])
        policy = Policy(1 if on_nonfinite == "stop" else NO_LIMIT)
        self.apply = ApplyGradients(self.optimizer, LossScaler(policy), None, scaled)

    def __call__(self, gradients, factor: float = 1.0, rate: float = 0.1) -> tuple[float, float]:
        norm, _, applied, *_ = self.apply(tuple(map(Tensor, gradients)), number(factor), number(rate))
        return float(norm.asnumpy()), float(applied.asnumpy())

    def state(self) -> dict[str, np.ndarray]:
        parameters = self.optimizer.get_parameters()
        return {p.name: p.asnumpy().copy() for p in parameters if p is not self.optimizer.learning_rate}

    def spoilt(self, value: float) -> list[np.ndarray]:
        gradients = [g.copy() for g in self.good]
        gradients[1][2] = value
        return gradients


@pytest.mark.slow
@pytest.mark.parametrize("optimizer", ["momentum", "sgd", "adam", "adamw"])
def test_skip_leaves_no_trace(optimizer: str) -> None:
    skipping, twin = Small(optimizer, on_nonfinite="skip"), Small(optimizer)
    for value in (np.nan, np.inf, -np.inf):
        assert skipping(skipping.good)[1] == twin(twin.good)[1] == 1
        before = skipping.state()
        assert skipping(skipping.spoilt(value))[1] == 0
        assert_same_bits(skipping.state(), before)
    skipping(skipping.good), twin(twin.good)
    assert_same_bits(skipping.state(), twin.state())


@pytest.mark.parametrize("optimizer", ["momentum", "adamw"])
def test_stop_applies_nothing_any_more(optimizer: str) -> None:
    stopping = Small(optimizer)
    assert stopping(stopping.good)[1] == 1
    before = stopping.state()
    assert [stopping(gradients)[1] for gradients in (stopping.spoilt(np.nan), stopping.good, stopping.good)] == [0] * 3
    assert_same_bits(stopping.state(), before)


def test_the_norm_is_of_the_gradients_after_the_factor() -> None:
    scaled, twin = Small("plain", scaled=True), Small("plain")
    expected = 0.25 * np.sqrt(sum(np.sum(np.asarray(g, float) ** 2) for g in scaled.good))
    assert scaled(scaled.good, 0.25) == (pytest.approx(expected, rel=1e-6), 1)
    twin([np.float32(0.25) * g for g in twin.good])
    assert_same_bits(scaled.state(), twin.state())


def test_a_factor_that_overflows_is_refused() -> None:
    scaled = Small("plain", scaled=True)
    before = scaled.state()
    assert scaled(scaled.spoilt(1e18), 1e30)[1] == 0
    assert_same_bits(scaled.state(), before)


def test_norms_up_to_the_root_of_the_largest_float32() -> None:
    small = Small("plain")
    for largest, applied in ((1e-15, 1), (1e18, 1), (2e19, 0)):
        gradients = [np.full_like(g, largest / 10) for g in small.good]
        gradients[0][0, 0] = largest
        expected = np.sqrt(sum(np.sum(np.asarray(g, float) ** 2) for g in gradients)) if applied else np.inf
        assert small(gradients) == (pytest.approx(expected, rel=1e-6), applied)


@pytest.mark.parametrize("shape", [(120, 400), (512, 784), (512, 4608)])
def test_the_norm_of_large_tensors(shape: tuple[int, int]) -> None:
    gradient = np.random.default_rng(0).standard_normal(shape).astype(np.float32)
    weight = Parameter(Tensor(np.zeros(shape, np.float32)), name="weight")
    apply = ApplyGradients(optimizers.build([weight], OPTIMIZERS["plain"]), LossScaler(Policy()), None, scaled=False)
    norm, *_ = apply((Tensor(gradient),), number(1.0), number(0.0))
    assert float(norm.asnumpy()) == pytest.approx(np.sqrt(np.sum(np.asarray(gradient, float) ** 2)), rel=1e-5)


def windows(split, steps: int, spoilt: tuple[int | None, ...]) -> list[list[tuple[np.ndarray, np.ndarray]]]:
    """One window for each entry, of micro-batches of 8; an entry names the micro-batch whose input is infinite."""
    found = []
    for place, position in enumerate(spoilt):
        window = [split.batch(np.arange(8) + 8 * (steps * place + step)) for step in range(steps)]
        if position is not None:
            window[position][0][3, 0, 10, 10] = np.inf
        found.append(window)
    return found


@pytest.mark.slow
@pytest.mark.parametrize(("window", "steps", "optimizer"), [("whole", 1, "momentum"), ("accum", 3, "adamw")])
def test_a_spoilt_window_is_skipped_as_if_it_had_never_been(build, digits, window, steps, optimizer) -> None:
    skipping, twin = (build("mlp", optimizer, 8, WINDOWS[window], policy) for policy in ("skip", "stop"))
    spoilt = (None, 0, None, steps // 2, steps - 1, None)
    for position, samples in zip(spoilt, windows(digits("mlp").train, steps, spoilt), strict=True):
        before = skipping.state()
        assert skipping.step(samples, 0.01).outcome.asnumpy()[-4] == (position is None)
        if position is None:
            twin.step(samples, 0.01)
        else:
            assert_same_bits(skipping.state(), before)
    assert_same_bits(skipping.state(), twin.state())


@pytest.mark.slow
@pytest.mark.parametrize(("window", "steps"), [("whole", 1), ("accum", 3)])
def test_training_stops_at_a_spoilt_window(build, digits, window, steps) -> None:
    parts, states, applied = build("lenet", "adam", 8, WINDOWS[window], "stop"), [], []
    for samples in windows(digits("lenet").train, steps, (None, steps - 1, None, None)):
        applied.append(parts.step(samples, 0.01).outcome.asnumpy()[-4])
        states.append(parts.state())
    assert applied == [1, 0, 0, 0]
    assert_same_bits(states[-1], states[0])


@pytest.mark.slow
@pytest.mark.parametrize("window", WINDOWS)
@pytest.mark.parametrize("model", ["lenet", "mlp"])
def test_the_same_seed_gives_the_same_bits(build, digits, model, window) -> None:
    train, states, accum = digits(model).train, [], WINDOWS[window]
    order = Sampler(len(train), seed=1, micro_batch=16, steps=accum.steps if accum else 1)
    for _ in range(2):
        parts = build(model, "adam", 16, accum, seed=1)
        for ranks in islice(order.epoch(0), 10):
            parts.step([train.batch(indices) for indices in ranks[0]], 0.001)
        states.append(parts.state())
    assert_same_bits(*states)
