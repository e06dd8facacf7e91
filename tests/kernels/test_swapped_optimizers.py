"""MindSpore's optimizers as `accelerate` makes them: the same weights and states after the same gradients."""

from collections.abc import Callable
from pathlib import Path

import mindspore as ms
import numpy as np
import pytest
from mindspore import Parameter, Tensor, nn, ops

from msaccel.kernels import accelerate, restore
from msaccel.kernels.swapped_optimizers import OPTIMIZERS
from tests.reference import distance

pytestmark = pytest.mark.usefixtures("graph_mode")
SHAPES = {"first.weight": (3, 4), "norm.gamma": (5,), "last.weight": (2, 3, 2), "last.bias": (7,)}
Make = Callable[..., nn.Optimizer]
MAKE: dict[str, Make] = {
    "momentum": lambda groups, rate=0.1, **more: nn.Momentum(groups, rate, 0.9, **more),
    "AdamW": lambda groups, rate=0.1, **more: nn.AdamWeightDecay(groups, rate, 0.8, 0.95, **more),
}


def weights(kind: ms.Type = ms.float32) -> list[Parameter]:
    draw = np.random.default_rng(0).standard_normal
    return [Parameter(Tensor(draw(shape), kind), name) for name, shape in SHAPES.items()]


def gradients(step: int) -> tuple[Tensor, ...]:
    draw = np.random.default_rng(step).standard_normal
    return tuple(Tensor(draw(shape).astype(np.float32)) for shape in SHAPES.values())


def groups(parameters: list[Parameter]) -> list[dict[str, object]]:
    return [
        {"params": parameters[::2], "weight_decay": 0.2},
        {"params": parameters[1::2]},
        {"order_params": parameters},
    ]


def state(optimizer: nn.Optimizer, steps: int) -> dict[str, np.ndarray]:
    """All parameters after these steps, by name."""
    for step in range(steps):
        optimizer(gradients(step))
    return {parameter.name: parameter.asnumpy().copy() for parameter in optimizer.get_parameters()}


def assert_same(found: dict[str, np.ndarray], expected: dict[str, np.ndarray]) -> None:
    assert list(found) == list(expected)
    for name, value in expected.items():
        assert distance([found[name]], [value]) <= 1e-6, name


@pytest.mark.usefixtures("mode")
@pytest.mark.parametrize("name", MAKE)
@pytest.mark.parametrize("decayed", ["none", "all", "groups"])
def test_weights_and_states_are_those_of_mindspores_steps(name: str, decayed: str) -> None:
    optimizers = []
    for _ in range(2):
        parameters = weights()
        chosen = groups(parameters) if decayed == "groups" else parameters
        scale = {} if name == "AdamW" else {"loss_scale": 8.0}
        optimizers.append(MAKE[name](chosen, weight_decay=0.0 if decayed == "none" else 0.1, **scale))
    native, swapped = optimizers
    kind = type(native).__name__
    assert accelerate(swapped).replaced == {"": kind}
    assert_same(state(swapped, 3), state(native, 3))
    assert swapped.global_step.asnumpy() == 3
    restore(swapped)
    assert type(swapped) is type(native) and vars(swapped).keys() == vars(native).keys()
    assert_same(state(swapped, 3), state(native, 3))


class InFloat64(nn.learning_rate_schedule.LearningRateSchedule):
    """Half as much after each step, where MindSpore's schedules are in float32."""

    def construct(self, step: Tensor) -> Tensor:
        return ops.cast(0.1 * ops.pow(Tensor(0.5, ms.float64), ops.cast(step, ms.float64)), ms.float64)


@pytest.mark.usefixtures("mode")
@pytest.mark.parametrize("schedule", [lambda: nn.ExponentialDecayLR(0.1, 0.5, 1), InFloat64])
@pytest.mark.parametrize("name", MAKE)
def test_a_rate_that_changes(name: str, schedule: Callable[[], nn.Cell]) -> None:
    native, swapped = MAKE[name](weights(), nn.ExponentialDecayLR(0.1, 0.5, 1)), MAKE[name](weights(), schedule())
    accelerate(swapped)
    assert_same(state(swapped, 3), state(native, 3))


def test_two_in_one_graph() -> None:
    class Both(nn.Cell):
        def __init__(self, swap: bool) -> None:
            super().__init__()
            first, second = weights(), weights()
            for parameter in second:
                parameter.name = f"other.{parameter.name}"
            self.first, self.second = MAKE["AdamW"](first), MAKE["AdamW"](second)
            if swap:
                accelerate(self)

        def construct(self, gradients: tuple[Tensor, ...]) -> bool:
            self.first(gradients)
            self.second(gradients)
            return True

    states = []
    for swap in (False, True):
        both = Both(swap)
        both(gradients(0))
        states.append({parameter.name: parameter.asnumpy() for parameter in both.get_parameters()})
    assert_same(states[1], states[0])


@pytest.mark.parametrize("weight", ["step", "first", "tensors", "scalars", "numbers"])
@pytest.mark.parametrize("name", MAKE)
def test_a_weight_may_be_named_like_anything_of_ours(name: str, weight: str) -> None:
    found = []
    for prepare in (lambda _: None, accelerate):
        optimizer = MAKE[name]([Parameter(Tensor([0.5], ms.float32), weight)])
        prepare(optimizer)
        optimizer((Tensor([0.25], ms.float32),))
        found.append({parameter.name: parameter.asnumpy() for parameter in optimizer.get_parameters()})
    assert_same(found[1], found[0])


@pytest.mark.parametrize("go", [False, True])
@pytest.mark.parametrize("name", MAKE)
def test_in_a_branch(name: str, go: bool) -> None:
    class Stepping(nn.Cell):
        def __init__(self, optimizer: nn.Optimizer) -> None:
            super().__init__(auto_prefix=False)
            self.optimizer = optimizer

        def construct(self, gradients: tuple[Tensor, ...], go: Tensor) -> Tensor:
            if go:
                self.optimizer(gradients)
            return go

    native, swapped = (MAKE[name](weights()) for _ in range(2))
    accelerate(swapped)
    for optimizer in (native, swapped):
        Stepping(optimizer)(gradients(0), Tensor(go))
    assert_same(state(swapped, 0), state(native, 0))
    assert (swapped.parameters[0].asnumpy() == weights()[0].asnumpy()).all() != go


def test_rate_and_momentum_may_be_set_afterwards() -> None:
    native, swapped = (MAKE["momentum"](weights()) for _ in range(2))
    accelerate(swapped)
    for optimizer in (native, swapped):
        optimizer(gradients(9))
        optimizer.momentum.set_data(Tensor(0.5, ms.float32))
        optimizer.learning_rate.set_data(Tensor(0.3, ms.float32))
    assert_same(state(swapped, 2), state(native, 2))


@pytest.mark.usefixtures("mode")
@pytest.mark.parametrize("name", MAKE)
def test_gradients_in_float16_are_cast(name: str) -> None:
    native, swapped = (MAKE[name](weights()) for _ in range(2))
    accelerate(swapped)
    narrow = tuple(gradient.astype(ms.float16) for gradient in gradients(0))
    native(tuple(gradient.astype(ms.float32) for gradient in narrow))
    swapped(narrow)
    assert_same(state(swapped, 0), state(native, 0))


def test_sparse_gradients_are_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As they are without `accelerate`. MindSpore drops the whole step of an optimizer that asks for their type."""
    network = nn.SequentialCell(nn.EmbeddingLookup(10, 4, sparse=True), nn.Dense(4, 3))
    optimizer = nn.Momentum(network.trainable_params(), 0.1, 0.9)
    accelerate(optimizer)
    step = nn.TrainOneStepCell(nn.WithLossCell(network, nn.CrossEntropyLoss()), optimizer).set_train()
    monkeypatch.chdir(tmp_path)  # MindSpore writes what it could not compile
    with pytest.raises(TypeError, match="RowTensor"):
        step(Tensor([1, 2], ms.int32), Tensor([0, 1], ms.int32))


@pytest.mark.parametrize(
    ("make", "left"),
    [
        (lambda: nn.Momentum(weights(), 0.1, 0.9, use_nesterov=True), "Momentum: with Nesterov's momentum"),
        (lambda: nn.Adam(weights()), "Adam: its gradients may be sparse"),
        (lambda: nn.Momentum(weights(ms.float16), 0.1, 0.9), "Momentum: weights of other types than float32"),
        (
            lambda: nn.Momentum([{"params": weights(), "lr": 0.2}], 0.1, 0.9),
            "Momentum: groups with learning rates of their own",
        ),
        (
            lambda: nn.Momentum([{"params": weights(), "grad_centralization": True}], 0.1, 0.9),
            "Momentum: centralised gradients",
        ),
        (
            lambda: nn.AdamWeightDecay(weights(), weight_decay=nn.ExponentialDecayLR(0.1, 0.5, 1)),
            "AdamWeightDecay: a weight decay that changes",
        ),
    ],
)
def test_report_says_why_an_optimizer_stays(make: Callable[[], nn.Optimizer], left: str) -> None:
    optimizer = make()
    kind, report = type(optimizer), accelerate(optimizer)
    assert not report.replaced and report.left[""].startswith(left) and type(optimizer) is kind


def test_a_derived_optimizer_stays() -> None:
    class Own(nn.Momentum):
        pass

    optimizer = Own(weights(), 0.1, 0.9)
    report = accelerate(optimizer)
    assert not report.replaced and not report.left and type(optimizer) is Own


@pytest.mark.usefixtures("mode")
def test_in_a_training_step_with_its_network() -> None:
    images = Tensor(np.random.default_rng(1).standard_normal((4, 3, 8, 8)).astype(np.float32))
    losses, labels = [], Tensor(np.arange(4, dtype=np.int32))
    for swap in (False, True):
        ms.set_seed(1)
        network = nn.SequentialCell(nn.Conv2d(3, 6, 3), nn.BatchNorm2d(6), nn.ReLU(), nn.Flatten(), nn.Dense(384, 4))
        optimizer = nn.Momentum(network.trainable_params(), 0.1, 0.9, weight_decay=1e-3)
        step = nn.TrainOneStepCell(nn.WithLossCell(network, nn.CrossEntropyLoss()), optimizer).set_train()
        if swap:
            assert accelerate(step).replaced["optimizer"] == "Momentum"
            assert type(optimizer) is OPTIMIZERS[nn.Momentum]
        losses.append([float(step(images, labels).asnumpy()) for _ in range(5)])
        statistics = network[1].moving_mean.asnumpy()
        losses[-1].extend(statistics)
    assert losses[1] == pytest.approx(losses[0], rel=1e-4, abs=1e-5) and losses[0][4] < losses[0][0]
