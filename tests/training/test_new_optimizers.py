"""All optimizers but the standard ones: whole updates against float64, their state, and what they refuse."""

from collections.abc import Callable
from itertools import islice
from pathlib import Path

import mindspore as ms
import numpy as np
import pytest
from mindspore import Parameter, Tensor, nn
from safetensors.numpy import load_file

from msaccel import kernels, models, schema
from msaccel.checkpoint.state import set_values
from msaccel.errors import ConfigError
from msaccel.training import optimizers
from msaccel.training.optimizers.muon import orthogonalised
from tests import reference
from tests.conftest import Job, assert_same_bits
from tests.running import SMALL, Store
from tests.training import recursions

pytestmark = pytest.mark.usefixtures("graph_mode")

COMMON = ("data=synthetic", "tracking.uri=sqlite:///none", "train.batch_size=32")
RATES = [0.4, 0.7, 1.0, 1.0] + [1.0, 0.8, 0.5, 0.3] * 4  # of the peak: a warm-up, then up and down
DECAY = 0.3
BIASES = (1, 3, 5)
NAMES = ("lars", "lamb", "lion", "muon", "shampoo", "schedulefree")
FUSED = ("lars", "lamb", "lion", "schedulefree")  # with native operators
# A peak rate that moves the tiny network by much in 20 updates, and other settings than the defaults.
OVERRIDES = {
    "lars": (2.0, "optimizer.momentum=0.8", "optimizer.eta=0.05"),
    "lamb": (0.05, "optimizer.beta1=0.8", "optimizer.beta2=0.97"),
    "lion": (0.01, "optimizer.beta1=0.85", "optimizer.beta2=0.95"),
    "muon": (0.1, "optimizer.momentum=0.8", "optimizer.adamw_lr=0.02", "optimizer.beta2=0.97"),
    "muon without nesterov": (0.1, "optimizer.nesterov=false", "optimizer.adamw_lr=0.02"),
    "shampoo": (0.03, "optimizer.interval=1", "optimizer.max_size=8", "optimizer.ridge=0.01", "optimizer.beta2=0.97"),
    "shampoo now and then": (0.03, "optimizer.interval=3", "optimizer.ridge=0.01", "optimizer.beta1=0.8"),
    "schedulefree": (0.03, "optimizer.beta1=0.8", "optimizer.beta2=0.97"),
    "schedulefree sgd": (0.3, "optimizer.form=sgd", "optimizer.beta1=0.7"),
}


class Deep(nn.Cell):
    """A dense network, 12-6-8-4, for images (n, 1, 3, 4), of which one matrix is hidden."""

    def __init__(self, batch_norm: bool = False) -> None:
        super().__init__()
        first = [nn.Dense(12, 6)]
        if batch_norm:  # before which a bias would have no gradient but rounding
            first = [nn.Dense(12, 6, has_bias=False), nn.BatchNorm1d(6)]
        self.layers = nn.SequentialCell(nn.Flatten(), *first, nn.ReLU(), nn.Dense(6, 8), nn.ReLU(), nn.Dense(8, 4))
        draw = np.random.default_rng(0).normal
        for parameter in self.trainable_params():
            parameter.set_data(Tensor(draw(0, 0.5, parameter.shape).astype(np.float32)))

    def construct(self, images: Tensor) -> Tensor:
        return self.layers(images)


class Sparing(Deep):
    """The same, whose biases do not decay."""

    def undecayed(self) -> frozenset[str]:
        return frozenset(weight.name for weight in self.trainable_params() if weight.ndim == 1)


def chosen(case: str, *overrides: str) -> tuple[str, ...]:
    rate, *settings = OVERRIDES[case]
    return (*COMMON, f"optimizer={case.split()[0]}", f"optimizer.lr={rate}", *settings, *overrides)


def recursion(settings: schema.OptimizerSettings, weights: list, sparing: bool, averages: list) -> recursions.Recursion:
    """The definition with a job's settings, ready for its first step."""
    walk = begun(settings, weights, sparing, averages)
    next(walk)
    return walk


def begun(settings: schema.OptimizerSettings, weights: list, sparing: bool, averages: list) -> recursions.Recursion:
    own = {**vars(settings)}
    name, rate, decay = own.pop("name"), own.pop("lr"), own.pop("weight_decay")
    if name in ("lars", "lamb"):
        return getattr(recursions, name)(weights, decay, **own)
    decays = [0.0 if sparing and place in BIASES else decay for place in range(len(weights))]
    if name in ("lion", "shampoo"):
        return getattr(recursions, name)(weights, decays, **own)
    if name == "muon":
        return recursions.muon(weights, decays, hidden=[2], of_adamw=own.pop("adamw_lr") / rate, **own)
    return recursions.schedulefree(weights, decays, averages=averages, **own)


def at_the_peak(weights: list, images: np.ndarray, labels: np.ndarray, rho: float) -> list:
    """SAM's gradient."""
    gradients = reference.mlp_gradients(weights, images, labels)
    share = rho / reference.norm(gradients)
    return reference.mlp_gradients([w + share * g for w, g in zip(weights, gradients, strict=True)], images, labels)


def trained(parts, patches, gradient: Callable = reference.mlp_gradients) -> tuple[list, list, list]:
    """The weights after each of 20 updates of a job, those of float64, and the averages of schedule-free."""
    found, expected, averages = [], [], []
    weights = [w.astype(float) for w in parts.weights()]
    walk = recursion(parts.config.optimizer, weights, isinstance(parts.network, Sparing), averages)
    for windows, share in zip(parts.windows(patches, 256), RATES, strict=False):
        rate = share * parts.config.optimizer.lr
        parts.update(windows, rate)
        found.append(parts.weights())
        batch = [np.concatenate(arrays) for arrays in zip(*(b for rank in windows for b in rank), strict=True)]
        weights = walk.send((weights, gradient(weights, *batch), rate))
        expected.append(weights)
    return found, expected, averages


def worst(found: list, expected: list) -> float:
    return max(reference.distance(*pair) for pair in zip(found, expected, strict=True))


CASES = {
    **{f"{case}, biases spared": (case, DECAY, Sparing) for case in OVERRIDES},
    **{f"{name}, no decay": (name, 0, Deep) for name in NAMES},
}
# Without decay only trust ratios are computed otherwise, and parts of Adasum, below, have Shampoo with these settings.
SELDOM = ("shampoo, biases spared", *(f"{name}, no decay" for name in NAMES if name not in ("lars", "lamb")))


@pytest.mark.parametrize(
    ("case", "decay", "network"),
    [pytest.param(*CASES[case], id=case, marks=pytest.mark.soak if case in SELDOM else ()) for case in CASES],
)
def test_twenty_updates_are_those_of_float64(job, patches, case: str, decay: float, network: type) -> None:
    parts = job(*chosen(case, f"optimizer.weight_decay={decay}"), network=network())
    start = parts.weights()
    found, expected, _ = trained(parts, patches)
    assert worst(found, expected) <= 1e-5
    assert reference.distance(found[-1], start) > 0.1, "otherwise little was trained"


WINDOWS = {
    "window": ("accel=accum", "accel.accum.steps=4", "train.batch_size=8"),
    "ranks": ("device=cpu4", "train.batch_size=8"),
    "sam": ("accel=sam", "accel.sam.rho=0.3"),
    "adasum of gradients": ("accel=adasum", "accel.adasum.scope=rank", "accel.adasum.apply=gradient", "device=cpu4",
                            "device.ranks_per_server=2", "train.batch_size=16"),
}  # fmt: skip
# Each way once: an optimizer does not know what has made its gradient.
OFTEN = ("lamb-window", "muon-sam", "schedulefree-ranks", "schedulefree-adasum of gradients")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "overrides"),
    [
        pytest.param(name, overrides, id=f"{name}-{way}", marks=() if f"{name}-{way}" in OFTEN else pytest.mark.soak)
        for name in ("lamb", "muon", "shampoo", "schedulefree")
        for way, overrides in WINDOWS.items()
        # tests/distributed/test_virtual_ranks.py has the same bits with ranks as with windows
        if way != "ranks" or name == "schedulefree"
    ],
)
def test_whatever_makes_the_gradient(job, patches, name: str, overrides: tuple[str, ...]) -> None:
    def gradient(weights: list, images: np.ndarray, labels: np.ndarray) -> list:
        if "accel=sam" in overrides:
            return at_the_peak(weights, images, labels, 0.3)
        if "accel=adasum" in overrides:
            halves = (slice(None, 16), slice(16, None))
            return reference.adasum_of([reference.mlp_gradients(weights, images[h], labels[h]) for h in halves])
        return reference.mlp_gradients(weights, images, labels)

    parts = job(*chosen(name, f"optimizer.weight_decay={DECAY}", *overrides), network=Sparing())
    found, expected, _ = trained(parts, patches, gradient)
    assert worst(found, expected) <= 1e-5


@pytest.mark.parametrize("name", ["lars", "lamb", "lion", "muon", "shampoo"])
def test_adasum_of_steps_has_an_optimizer_for_each_part(job, patches, name: str) -> None:
    overrides = ("accel=adasum", "accel.adasum.scope=rank", "device=cpu4", "device.ranks_per_server=2")
    parts = job(*chosen(name, f"optimizer.weight_decay={DECAY}", *overrides, "train.batch_size=16"), network=Sparing())
    weights, optimizer = [w.astype(float) for w in parts.weights()], parts.config.optimizer
    walks = [recursion(optimizer, weights, True, []) for _ in range(2)]
    for ranks in islice(parts.windows(patches, 256), 4):
        parts.update(ranks, optimizer.lr)
        steps = []
        for walk, ((images, labels),) in zip(walks, ranks, strict=True):
            moved = walk.send((weights, reference.mlp_gradients(weights, images, labels), optimizer.lr))
            steps.append([w - m for w, m in zip(weights, moved, strict=True)])
        weights = [w - step for w, step in zip(weights, reference.adasum_of(steps), strict=True)]
        assert reference.distance(parts.weights(), weights) <= 1e-5


@pytest.mark.parametrize("case", [case for case in OVERRIDES if case.split()[0] in FUSED])
def test_the_fused_step_is_that_of_the_graph(composed, case: str) -> None:
    """For tensors of several chunks and for a step that is left out; to the bit where no norm is summed."""
    optimizer, states = composed(*chosen(case, f"optimizer.weight_decay={DECAY}")).optimizer, []
    for name in ("onednn", "unfold"):
        kernels.use_backend(kernels.select_backend(name, on_cpu=True))
        draw = np.random.default_rng(0).standard_normal
        shapes = ((3, 70_000), (5,), (4, 7))
        weights = [Parameter(draw(shape).astype(np.float32), name=f"w{shape}") for shape in shapes]
        built = optimizers.build(weights, optimizer, {weights[1].name})
        assert built.fused == (name == "onednn")
        for go in (True, False, True, True):
            gradients = tuple(Tensor(draw(shape).astype(np.float32)) for shape in shapes)
            if built.fused:
                built(gradients, Tensor(float(go), ms.float32))
            elif go:
                built(gradients)
        states.append({parameter.name: parameter.asnumpy() for parameter in built.get_parameters()})
    for key, value in states[0].items():
        if case in ("lars", "lamb"):
            assert reference.distance([value], [states[1][key]]) <= 1e-6, key
        else:
            np.testing.assert_array_equal(value, states[1][key], err_msg=key)


@pytest.fixture(scope="module")
def plain(job) -> Job:
    """By whose steps a gradient is told; each use gives it weights."""
    return job(*COMMON, "optimizer=sgd", network=Deep(batch_norm=True))


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_batch_norm_does_not_keep_the_step_from_weights_and_state(job, patches, plain: Job, name: str) -> None:
    """MindSpore may hand an optimizer copies where a forward pass changes parameters, which would move instead."""
    parts = job(*chosen(name), network=Deep(batch_norm=True))
    rate, weights = parts.config.optimizer.lr, parts.network.trainable_params()
    alone = [Parameter(weight.asnumpy().copy(), name=weight.name) for weight in weights]
    other = optimizers.build(alone, parts.config.optimizer, (), models.outer(parts.network))
    for windows in islice(parts.windows(patches, 256), 3):
        before = [weight.asnumpy().copy() for weight in weights]
        set_values(plain.network.trainable_params(), {weight.name: weight.asnumpy().copy() for weight in weights})
        plain.update(windows, 1.0)
        gradients = [old - new for old, new in zip(before, plain.weights(), strict=True)]
        parts.update(windows, rate)
        other.learning_rate.set_data(Tensor(rate, ms.float32))
        other(tuple(map(Tensor, gradients)))
        own, expected = ({p.name: p.asnumpy() for p in each.get_parameters()} for each in (parts.optimizer, other))
        assert own.keys() == expected.keys()
        for key in own:
            np.testing.assert_allclose(own[key], expected[key], rtol=1e-3, atol=1e-4, err_msg=key)
        assert all((weight.asnumpy() != old).any() for weight, old in zip(weights, before, strict=True))


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_float16_trains_and_an_overflow_moves_nothing(job, patches, name: str) -> None:
    scaled = ("precision=fp16", "loss_scale.mode=dynamic", "loss_scale.init=1024")
    parts, plain = (job(*chosen(name), *more, network=Deep()) for more in (scaled, ()))
    first, second = islice(parts.windows(patches, 256), 2)
    rate = parts.config.optimizer.lr / 10
    for each in (parts, plain):
        for windows in (first, second):
            assert each.update(windows, rate).fetch().applied == 1
    assert reference.distance(parts.weights(), plain.weights()) < 0.02
    before = parts.training()
    set_values([parts.update.loss_scaler.scale], {"guard.scale": np.array(2.0**40, np.float32)})
    outcome = parts.update(first, rate).fetch()
    assert (outcome.applied, outcome.consecutive_skips) == (0, 1)
    assert_same_bits(parts.training(), before)
    set_values([parts.update.loss_scaler.scale], {"guard.scale": np.array(1024, np.float32)})
    assert parts.update(first, rate).fetch().applied == 1
    assert all((value != before[key]).any() for key, value in parts.training().items() if "global_step" not in key)


@pytest.mark.parametrize("name", [name for name in NAMES if name != "muon"])  # whose rate must be above zero
def test_a_rate_of_zero_leaves_the_weights(job, patches, name: str) -> None:
    parts = job(*chosen(name, "optimizer.weight_decay=0.1"), network=Deep())
    before = parts.weights()
    parts.update(next(parts.windows(patches, 256)), 0.0)
    np.testing.assert_equal(parts.weights(), before)


# Trust ratios


@pytest.mark.parametrize("name", ["lars", "lamb"])
def test_layers_of_zeros_have_a_ratio_of_one(name: str) -> None:
    """A layer that begins with zeros leaves them, and one without gradient stays finite."""
    settings = {
        "lars": schema.LarsSettings("lars", lr=0.1, weight_decay=0.0, momentum=0.9, eta=0.001),
        "lamb": schema.AdamSettings("lamb", lr=0.1, weight_decay=0.0, beta1=0.9, beta2=0.999, eps=1e-6),
    }[name]
    weights = [Parameter(np.full((2, 3), value, np.float32), name=f"w{value}") for value in (0, 1)]
    optimizer = optimizers.build(weights, settings)
    optimizer((Tensor(np.ones((2, 3), np.float32)), Tensor(np.zeros((2, 3), np.float32))))
    np.testing.assert_allclose(weights[0].asnumpy(), -0.1, rtol=1e-5)
    np.testing.assert_array_equal(weights[1].asnumpy(), 1)


# Muon


@pytest.mark.parametrize("shape", [(8, 8), (40, 6), (6, 400), (1, 5), (120, 400)])
def test_muon_moves_singular_values_close_to_one(shape: tuple[int, int]) -> None:
    matrix = np.random.default_rng(1).standard_normal(shape)
    found = orthogonalised(Tensor(matrix.astype(np.float32))).asnumpy()
    assert reference.distance([found], [recursions.orthogonalised(matrix)]) < 1e-4
    values = np.linalg.svd(found, compute_uv=False)
    assert values.min() > 0.68 and values.max() < 1.21


def test_muon_takes_a_kernel_for_a_matrix() -> None:
    draw = np.random.default_rng(0).standard_normal
    kernel, gradients = draw((24, 2, 3, 2)), [draw((24, 2, 3, 2)) for _ in range(3)]
    own = {"momentum": 0.9, "nesterov": True, "beta1": 0.9, "beta2": 0.95, "eps": 1e-10}
    walk = recursions.muon([kernel], [0.1], hidden=[0], of_adamw=0, **own)
    next(walk)
    weight, expected = Parameter(kernel.astype(np.float32), name="kernel"), kernel
    optimizer = optimizers.build([weight], schema.MuonSettings("muon", lr=0.1, weight_decay=0.1, adamw_lr=0.0, **own))
    for gradient in gradients:
        optimizer((Tensor(gradient.astype(np.float32)),))
        expected = walk.send(([expected], [gradient], 0.1))[0]
    assert reference.distance([weight.asnumpy()], [expected]) < 1e-5


def test_muon_leaves_a_gradient_of_zeros_finite() -> None:
    np.testing.assert_array_equal(orthogonalised(Tensor(np.zeros((3, 4), np.float32))).asnumpy(), 0)


BLOCK = ("attention.qkv.weight", "attention.out.weight", "wide.weight", "narrow.weight")
GPT = ("model=gpt", "data=shakespeare", "model.classes=7", "model.layers=2", "model.width=16", "model.block=8")
HIDDEN = {
    "lenet": (("model=lenet",), ["conv2.weight", "fc1.weight", "fc2.weight"]),
    "mlp": (("model=mlp",), ["dense_relu_sequential.2.weight"]),
    "gpt": (GPT, [f"blocks.{number}.{name}" for number in range(2) for name in BLOCK]),
    "gpt, not tied": ((*GPT, "model.tied=false"), [f"blocks.{number}.{name}" for number in range(2) for name in BLOCK]),
}


@pytest.mark.parametrize(("overrides", "expected"), HIDDEN.values(), ids=HIDDEN)
def test_muon_moves_hidden_matrices(job, overrides: tuple[str, ...], expected: list[str]) -> None:
    optimizer = job(*COMMON[1:], *overrides, "optimizer=muon").optimizer
    assert [optimizer.parameters[place].name for place in optimizer.hidden] == expected
    assert [p.name.removeprefix("momentum.") for p in optimizer.momenta] == expected
    assert sorted((*optimizer.hidden, *optimizer.others)) == list(range(len(optimizer.parameters)))


def test_muon_moves_all_convolutions_of_a_resnet_but_the_first(job) -> None:
    optimizer = job("model=resnet50", "model.depth=20", "data=cifar10", "optimizer=muon").optimizer
    hidden = {optimizer.parameters[place].name for place in optimizer.hidden}
    assert hidden == {p.name for p in optimizer.parameters if p.ndim == 4 and not p.name.startswith("stem")}


def test_muon_needs_a_hidden_matrix(job, tiny) -> None:
    with pytest.raises(ConfigError, match=r"this network has none; write optimizer=adamw\.$"):
        job(*COMMON, "optimizer=muon", network=tiny())


# Schedule-free


@pytest.mark.parametrize("case", ["schedulefree", "schedulefree sgd"])
def test_the_average_is_evaluated_and_training_goes_on_from_elsewhere(job, patches, case: str) -> None:
    parts = job(*chosen(case, "optimizer.weight_decay=0.1"), network=Deep())  # which decays its biases too
    evaluation = parts.update.evaluation_weights()
    with evaluation.in_place() as differ:
        start = parts.weights()
    found, _, averages = trained(parts, patches)
    with evaluation.in_place() as differ:
        assert differ
        assert reference.distance(parts.weights(), averages[-1]) <= 1e-5
        assert reference.distance(parts.weights(), found[-1]) > 1e-3
    np.testing.assert_equal(parts.weights(), found[-1])
    assert reference.distance(parts.weights(), start) > 0.1


def test_no_other_optimizer_is_evaluated_elsewhere(job) -> None:
    for name in ("momentum", "lamb"):
        assert job("model=mlp", f"optimizer={name}").update.evaluation_weights() is None


@pytest.mark.slow
def test_a_saved_run_holds_the_average(store: Store, tmp_path: Path) -> None:
    ended = store.run(*SMALL, "optimizer=schedulefree", "schedule.warmup=0.1")
    assert ended.returncode == 0, ended.stderr
    (run,) = store.runs()
    saved = load_file(Path(store.client.download_artifacts(run.info.run_id, "checkpoints/last.safetensors")))
    averages = {name.removeprefix("x."): value for name, value in saved.items() if name.startswith("x.")}
    assert len(averages) == 8
    assert_same_bits({name: saved[name] for name in averages}, averages)
    assert any((saved[f"z.{name}"] != value).any() for name, value in averages.items())
