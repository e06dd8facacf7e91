"""Residual networks: published sizes, what a block computes, its gradients, its norms, and the jobs that train them."""

from collections.abc import Callable, Iterator

import mindspore as ms
import numpy as np
import pytest
from mindspore import Tensor, nn, ops
from mindspore.common.initializer import XavierUniform

from msaccel import kernels, models, schema
from msaccel.kernels import Conv2d
from msaccel.models.precision import compute_in
from msaccel.models.resnet50 import CIFAR_WIDTHS, WIDTHS, stem_of
from msaccel.models.resnet50 import network as resnet
from msaccel.models.resnet50.network import Basic, Bottleneck, Layers, ResNet, Stem
from msaccel.step.graphs import Gradient
from msaccel.training import optimizers
from msaccel.training.evaluation import Evaluator
from tests import reference
from tests.conftest import OPTIMIZERS, Job

pytestmark = pytest.mark.usefixtures("graph_mode", "plain")

Array = np.ndarray
DRAW = np.random.default_rng(0)
SEEDED = DRAW.bit_generator.state
EPS = 1e-4


@pytest.fixture(autouse=True)
def drawn_anew() -> None:
    """Every test draws the same numbers, whichever ran before it."""
    DRAW.bit_generator.state = SEEDED


@pytest.fixture(scope="module")
def plain(graph_mode: None) -> Iterator[None]:
    """Operators whose tensors are (n, c, h, w) between the layers, too."""
    before = kernels.current_backend()
    kernels.use_backend(kernels.select_backend("unfold", on_cpu=True))
    yield
    kernels.use_backend(before)


def config(depth: int = 18, *, classes: int = 10, norm: str = "batch", **further: object) -> schema.ResNetSettings:
    chosen = {"init": "default", "version": "v1.5", "stem": "auto", "image_size": 32, **further}
    return schema.ResNetSettings("resnet50", classes=classes, depth=depth, norm=norm, **chosen)


def build(depth: int = 18, seed: int = 0, **further: object) -> ResNet:
    ms.set_seed(seed)
    return models.build(config(depth, **further))


def images(n: int, channels: int = 3, side: int = 32) -> Array:
    return DRAW.standard_normal((n, channels, side, side)).astype(np.float32)


def values(cell: nn.Cell) -> dict[str, Array]:
    return {parameter.name: parameter.asnumpy().astype(float) for parameter in cell.get_parameters()}


# Published for 1000 classes: torchvision's resnet18 to resnet101.
PUBLISHED = {18: 11_689_512, 34: 21_797_672, 50: 25_557_032, 101: 44_549_160}
# Published for CIFAR-10 with shortcuts that have no weights: 0.27, 0.46, 0.66 and 0.85 million in the paper's table 6.
PUBLISHED_FOR_CIFAR = {8: 75_290, 20: 269_722, 32: 464_154, 44: 658_586, 56: 853_018}


@pytest.mark.parametrize("norm", ["batch", "group"])
@pytest.mark.parametrize(("depth", "count"), PUBLISHED.items())
def test_published_parameter_counts(depth: int, count: int, norm: str) -> None:
    network = models.build(config(depth, classes=1000, norm=norm, image_size=224))
    assert sum(parameter.size for parameter in network.trainable_params()) == count
    convolutions = [parameter for parameter in network.trainable_params() if parameter.ndim == 4]
    projections = [parameter for parameter in convolutions if ".shortcut." in parameter.name]
    assert len(convolutions) - len(projections) + 1 == depth, "the dense layer is the last one counted"
    assert len(projections) == (3 if depth < 50 else 4)


@pytest.mark.parametrize(("depth", "count"), PUBLISHED_FOR_CIFAR.items())
def test_published_parameter_counts_for_cifar(depth: int, count: int) -> None:
    """But for the two projections, whose weights and norms are 2,752 values more."""
    network = build(depth)
    weights = {parameter.name: parameter for parameter in network.trainable_params()}
    projections = sum(parameter.size for name, parameter in weights.items() if ".shortcut." in name)
    assert projections == 16 * 32 + 2 * 32 + 32 * 64 + 2 * 64 == 2_752
    assert sum(parameter.size for parameter in weights.values()) == count + projections
    layers = [name for name, parameter in weights.items() if parameter.ndim > 1 and ".shortcut." not in name]
    assert len(layers) == depth


@pytest.mark.parametrize(
    ("depth", "version", "expected"),
    [(50, "v1.5", (3, 1)), (50, "v1", (1, 1)), (101, "v1.5", (3, 1)), (18, "v1.5", (3, 1))],
)
def test_where_the_strides_are(
    monkeypatch: pytest.MonkeyPatch, depth: int, version: str, expected: tuple[int, int]
) -> None:
    """Kernel sizes of the convolutions with stride 2: one of the block and its projection, in three stages."""
    halving: list[int] = []

    def conv(in_channels: int, out_channels: int, kernel_size: int, stride: int, **further: object) -> nn.Cell:
        halving.extend([kernel_size] * (stride == 2))
        return Conv2d(in_channels, out_channels, kernel_size, stride, **further)

    monkeypatch.setattr(resnet, "Conv2d", conv)
    network = build(depth, version=version)
    assert halving == [*expected] * 3
    for stage in network.stages:
        assert all(isinstance(block.shortcut, nn.Identity) for block in list(stage)[1:])


@pytest.mark.parametrize(("size", "stem"), [(32, "small"), (64, "small"), (65, "imagenet"), (224, "imagenet")])
def test_the_stem_follows_the_size_of_the_image(size: int, stem: str) -> None:
    assert stem_of(config(image_size=size)) == stem
    assert stem_of(config(image_size=size, stem="small")) == "small"
    kernel = models.build(config(image_size=size)).stem.conv.weight.shape[2]
    assert kernel == (3 if stem == "small" else 7)


@pytest.mark.parametrize(("kind", "side", "expected"), [("imagenet", 224, 56), ("imagenet", 35, 9), ("small", 32, 32)])
def test_sizes_after_the_stem(kind: str, side: int, expected: int) -> None:
    stem = Stem(Layers("batch", "ones"), kind, 64).set_train(False)
    assert stem(Tensor(images(1, side=side))).shape == (1, 64, expected, expected)


class Stages(nn.Cell):
    """The maps after the stem and after the first block of every stage; the other blocks keep the sizes."""

    def __init__(self, network: ResNet) -> None:
        super().__init__(auto_prefix=False)
        self.stem, self.blocks = network.stem, nn.CellList([stage[0] for stage in network.stages], auto_prefix=False)

    def construct(self, x: Tensor) -> tuple[Tensor, ...]:
        maps = (self.stem(x),)
        for block in self.blocks:
            maps = maps + (block(maps[-1]),)
        return maps


@pytest.mark.slow
@pytest.mark.parametrize(
    ("depth", "version", "size", "sides"),
    [
        (50, "v1.5", 224, (56, 56, 28, 14, 7)),
        (20, "v1.5", 32, (32, 32, 16, 8)),
        pytest.param(50, "v1", 32, (32, 32, 16, 8, 4), marks=pytest.mark.soak),
        pytest.param(18, "v1.5", 50, (50, 50, 25, 13, 7), marks=pytest.mark.soak),  # the same blocks in both versions
    ],
)
def test_sizes_after_every_stage(depth: int, version: str, size: int, sides: tuple[int, ...]) -> None:
    network = build(depth, image_size=size, version=version)
    assert all(isinstance(block.shortcut, nn.Identity) for stage in network.stages for block in list(stage)[1:])
    found = [y.shape for y in Stages(network).set_train(False)(Tensor(images(1, side=size)))]
    widths, expansion = (CIFAR_WIDTHS if depth == 20 else WIDTHS), 4 if depth == 50 else 1
    channels = [widths[0], *(width * expansion for width in widths)]
    assert found == [(1, c, side, side) for c, side in zip(channels, sides, strict=True)]


def test_initialisation_of_the_tutorials() -> None:
    for name, weight in values(build(50)).items():
        kind = name.rsplit(".", 1)[-1]
        if name == "head.weight":
            assert 0.019 < np.abs(weight).max() <= 0.02 and weight.std() == pytest.approx(0.0088, rel=0.03)
        elif kind == "weight":
            bound = np.sqrt(6 / ((weight.shape[0] + weight.shape[1]) * weight[0, 0].size))
            assert np.abs(weight).max() <= bound * (1 + 1e-6)
            assert weight.std() == pytest.approx(bound / np.sqrt(3), rel=5 / np.sqrt(weight.size))
        else:
            assert (weight == (1 if kind in ("gamma", "moving_variance") else 0)).all(), name


def test_normal_initialisation() -> None:
    for name, weight in values(build(18, init="normal(0.03)")).items():
        if name.endswith("weight"):
            assert weight.std() == pytest.approx(0.03, rel=4 / np.sqrt(weight.size))


def test_the_seed_decides_the_weights() -> None:
    first, again, other = (values(build(seed=seed)) for seed in (1, 1, 2))
    for name, weight in first.items():
        np.testing.assert_array_equal(weight, again[name])
        assert name.rsplit(".", 1)[-1] != "weight" or not np.array_equal(weight, other[name])


# One block against NumPy in float64.


def normalise(x: Array, gamma: Array, beta: Array) -> Array:
    mean, variance = x.mean((0, 2, 3), keepdims=True), x.var((0, 2, 3), keepdims=True)
    return (x - mean) / np.sqrt(variance + EPS) * gamma[:, None, None] + beta[:, None, None]


def block_in_numpy(weights: dict[str, Array], x: Array, convolutions: list[tuple[int, int]], stride: int) -> Array:
    """A block in training; `convolutions` are (kernel size, stride). A norm without weights is left out."""

    def layer(y: Array, conv: str, norm: str, kernel_size: int, stride: int) -> Array:
        y = reference.convolution(y, weights[f"{conv}.weight"], stride, kernel_size // 2)
        return normalise(y, weights[f"{norm}.gamma"], weights[f"{norm}.beta"]) if f"{norm}.gamma" in weights else y

    y = x
    for number, (kernel_size, step) in enumerate(convolutions, 1):
        y = layer(y if number == 1 else np.maximum(y, 0), f"conv{number}", f"norm{number}", kernel_size, step)
    projected = "shortcut.0.weight" in weights
    return np.maximum(y + (layer(x, "shortcut.0", "shortcut.1", 1, stride) if projected else x), 0)


CASES = {
    "basic": (Basic, 8, 8, 1, "v1.5", [(3, 1), (3, 1)]),
    "basic, halved": (Basic, 4, 8, 2, "v1.5", [(3, 2), (3, 1)]),
    "bottleneck, v1.5": (Bottleneck, 8, 4, 2, "v1.5", [(1, 1), (3, 2), (1, 1)]),
    "bottleneck, v1": (Bottleneck, 8, 4, 2, "v1", [(1, 2), (3, 1), (1, 1)]),
    "bottleneck": (Bottleneck, 16, 4, 1, "v1.5", [(1, 1), (3, 1), (1, 1)]),
}


class Weighted(nn.Cell):
    """sum(dy · block(x)), its value and gradients by x and by all weights."""

    def __init__(self, block: nn.Cell) -> None:
        super().__init__(auto_prefix=False)
        self.block = block
        self.differentiate = ops.value_and_grad(self.forward, 0, block.trainable_params(), has_aux=True)

    def forward(self, x: Tensor, dy: Tensor) -> tuple[Tensor, Tensor]:
        y = self.block(x)
        return (y * dy).sum(), y

    def construct(self, x: Tensor, dy: Tensor) -> tuple[Tensor, ...]:
        (_, y), (dx, dweights) = self.differentiate(x, dy)
        return y, dx, dweights


def made(case: str, norm: str = "batch") -> nn.Cell:
    kind, in_channels, width, stride, version, _ = CASES[case]
    block = kind(Layers(norm, "ones"), in_channels, width, stride, version)
    for parameter in block.trainable_params():
        drawn = DRAW.normal(1 if parameter.name.endswith("gamma") else 0, 0.3, parameter.shape)
        parameter.set_data(Tensor(drawn.astype(np.float32)))
    return block


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES)
def test_a_block_and_its_gradients(case: str) -> None:
    must_be_numpys(made(case), case)


def must_be_numpys(block: nn.Cell, case: str) -> None:
    """Values by the definition; gradients by its central differences along random directions."""
    _, in_channels, _, stride, _, convolutions = CASES[case]
    x, weights = images(3, in_channels, 6), values(block)
    expected = block_in_numpy(weights, x, convolutions, stride)
    dy = DRAW.standard_normal(expected.shape).astype(np.float32)
    y, dx, dweights = Weighted(block).set_train()(Tensor(x), Tensor(dy))
    assert reference.distance([y.asnumpy()], [expected]) <= 1e-5

    def loss(name: str, step: Array) -> float:
        moved = {**weights, name: weights[name] + step} if name else weights
        return float((block_in_numpy(moved, x + (step if not name else 0), convolutions, stride) * dy).sum())

    names = ["", *(parameter.name for parameter in block.trainable_params())]
    for name, gradient in zip(names, [dx, *dweights], strict=True):
        direction = DRAW.standard_normal(gradient.shape)
        slope = (loss(name, 1e-6 * direction) - loss(name, -1e-6 * direction)) / 2e-6
        size = np.linalg.norm(gradient.asnumpy()) * np.linalg.norm(direction)
        assert abs(float((gradient.asnumpy() * direction).sum()) - slope) <= 1e-4 * size, name


def test_running_statistics_of_a_training_step() -> None:
    """0.9 of the old and 0.1 of the batch's, its variance by n − 1."""
    layer = Layers("batch", "ones").normalise(5).set_train()
    x = (3 * images(4, 5, 6) + 2).astype(np.float32)
    for _ in range(2):
        layer(Tensor(x))
    mean, variance = x.mean((0, 2, 3), dtype=float), x.astype(float).var((0, 2, 3), ddof=1)
    np.testing.assert_allclose(layer.moving_mean.asnumpy(), (1 - 0.9**2) * mean, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(layer.moving_variance.asnumpy(), 0.9**2 + (1 - 0.9**2) * variance, rtol=1e-5)
    layer.set_train(False)
    before = values(layer)
    kept_mean, kept_variance = (
        each.asnumpy().reshape(1, 5, 1, 1) for each in (layer.moving_mean, layer.moving_variance)
    )
    expected = (x - kept_mean) / np.sqrt(kept_variance.astype(float) + EPS)
    assert reference.distance([layer(Tensor(x)).asnumpy()], [expected]) <= 1e-6
    for name, value in values(layer).items():
        np.testing.assert_array_equal(value, before[name])


def test_padded_pooling_and_its_gradient() -> None:
    pool = Stem(Layers("batch", "ones"), "imagenet", 64).pool
    x = images(2, 3, 9)
    padded = np.pad(x, ((0, 0), (0, 0), (1, 1), (1, 1)), constant_values=-np.inf)
    dy = DRAW.standard_normal((2, 3, 5, 5)).astype(np.float32)
    expected, dx = np.empty_like(dy), np.zeros(padded.shape)
    for i, j, (rows, columns) in reference.positions(x, 3, 2, 1):
        window = padded[:, :, rows, columns]
        expected[:, :, i, j] = np.maximum(window.max((2, 3)), 0)  # the ReLU; nothing in a window equals its zero
        dx[:, :, rows, columns] += (window == expected[:, :, i, j, None, None]) * dy[:, :, i, j, None, None]

    class Pooled(nn.Cell):
        def __init__(self) -> None:
            super().__init__()
            self.pool, self.gradient = pool, ops.GradOperation(sens_param=True)(pool)

        def construct(self, x: Tensor, dy: Tensor) -> tuple[Tensor, Tensor]:
            return self.pool(x), self.gradient(x, dy)

    found, gradient = Pooled()(Tensor(x), Tensor(dy))
    np.testing.assert_array_equal(found.asnumpy(), expected)
    np.testing.assert_allclose(gradient.asnumpy(), dx[:, :, 1:-1, 1:-1], rtol=1e-6, atol=1e-6)  # sums may cancel


def test_group_norm_and_its_gradient() -> None:
    layer = Layers("group", "ones").normalise(64)
    assert layer.num_groups == 32 and Layers("group", "ones").normalise(16).num_groups == 16
    x, dy = images(2, 64, 3), images(2, 64, 3)

    def groups(x: Array) -> Array:
        parts = x.astype(float).reshape(2, 32, -1)
        return ((parts - parts.mean(2, keepdims=True)) / np.sqrt(parts.var(2, keepdims=True) + 1e-5)).reshape(x.shape)

    y, dx, _ = Weighted(layer).set_train()(Tensor(x), Tensor(dy))
    assert reference.distance([y.asnumpy()], [groups(x)]) <= 1e-5
    direction = DRAW.standard_normal(x.shape)
    slope = ((groups(x + 1e-5 * direction) - groups(x - 1e-5 * direction)) * dy).sum() / 2e-5
    assert float((dx.asnumpy() * direction).sum()) == pytest.approx(slope, rel=1e-4)


@pytest.mark.slow
def test_group_norm_sees_each_sample_alone() -> None:
    """Unlike batch norm, whose output depends on what else is in the batch."""
    x = images(4, 8, 6)
    for norm, alone in (("group", True), ("batch", False)):
        block = made("basic", norm).set_train()
        merged, half = block(Tensor(x)).asnumpy()[:2], block(Tensor(x[:2])).asnumpy()
        assert (reference.distance([merged], [half]) <= 1e-6) == alone


# Precision and decay.


@pytest.mark.slow
def test_norms_compute_in_float32_beside_float16() -> None:
    """Values near 300 have squares above float16's largest number, 65504."""

    class Probe(nn.Cell):
        def __init__(self, norm: nn.Cell) -> None:
            super().__init__()
            self.conv, self.norm = Layers("batch", "ones").conv(32, 32, 1), norm

        def construct(self, x: Tensor) -> tuple[Tensor, Tensor]:
            y = self.conv(x)
            return y, self.norm(y)

    for norm in (nn.BatchNorm2d(32), nn.GroupNorm(32, 32)):
        low, high = compute_in(Probe(norm), "fp16").set_train()(Tensor(images(2, 32, 4) * 10 + 9))
        assert (low.dtype, high.dtype) == (ms.float16, ms.float32)
        y = low.asnumpy().astype(float)
        assert np.abs(y).max() > 300
        axes = (0, 2, 3) if isinstance(norm, nn.BatchNorm2d) else (2, 3)
        expected = (y - y.mean(axes, keepdims=True)) / np.sqrt(y.var(axes, keepdims=True) + 1e-5)
        assert reference.distance([high.asnumpy()], [expected]) <= 1e-4


@pytest.mark.slow
def test_float16_is_the_same_on_all_operators(job: Callable[..., Job]) -> None:
    """With casts in the graph MindSpore took the shapes of one native operator for those of another."""
    common = ("model=resnet50", "model.depth=8", "model.image_size=16", "data=synthetic", "train.batch_size=8")
    x, labels, moved = images(8, side=16), np.arange(8, dtype=np.int32) % 10, []
    for choice in ("unfold", "auto"):
        parts = job(*common, "precision=fp16", "optimizer=sgd", f"kernels.use={choice}")
        before = parts.weights()
        parts.step([(x, labels)], 1.0)
        moved.append([new - old for new, old in zip(parts.weights(), before, strict=True)])
    assert reference.distance(moved[1], moved[0]) <= 0.15, "rounding, amplified by the norms"


def test_which_parameters_decay() -> None:
    network = build(50)
    undecayed = models.undecayed(network)
    for parameter in network.trainable_params():
        assert (parameter.name in undecayed) == (parameter.ndim == 1), parameter.name
    assert len(undecayed) == 2 * 53 + 1
    for name in ("lenet", "mlp"):
        assert models.undecayed(models.build(schema.ModelSettings(name, "default", 10))) == frozenset()


def test_a_job_decays_what_the_network_says(job: Callable[..., Job]) -> None:
    parts = job("model=resnet50", "model.depth=18", "optimizer.weight_decay=0.5")
    optimizer, undecayed = parts.optimizer, models.undecayed(parts.network)
    for parameter, decay in zip(optimizer.parameters, optimizer.weight_decay, strict=True):
        assert decay == (0.0 if parameter.name in undecayed else 0.5), parameter.name
    assert {*map(float, job("model=lenet", "optimizer.weight_decay=0.5").optimizer.weight_decay)} == {0.5}


@pytest.mark.parametrize("name", ["momentum", "nesterov", "sgd", "adam", "adamw"])
def test_decay_leaves_the_undecayed_alone(name: str) -> None:
    """A weight that decays moves as with decay for all, one that does not as without any; in their own order."""
    if name == "nesterov":
        chosen = schema.MomentumSettings("momentum", lr=1.0, weight_decay=0.05, momentum=0.9, nesterov=True)
    else:
        chosen = schema.OptimizerSettings.__new__(type(OPTIMIZERS[name]))
        chosen.__dict__.update(OPTIMIZERS[name].__dict__, weight_decay=0.05)
    none = type(chosen)(**{**chosen.__dict__, "weight_decay": 0.0})
    start = [DRAW.standard_normal(shape).astype(np.float32) for shape in ((3,), (4, 2), (5,), (2, 2))]
    gradients = [[DRAW.standard_normal(w.shape).astype(np.float32) for w in start] for _ in range(3)]

    def trained(settings: schema.OptimizerSettings, undecayed: frozenset[str]) -> list[Array]:
        weights = [ms.Parameter(Tensor(w), name=f"w{i}") for i, w in enumerate(start)]
        optimizer = optimizers.build(weights, settings, undecayed)
        assert [parameter.name for parameter in optimizer.parameters] == ["w0", "w1", "w2", "w3"]
        for number, step in enumerate(gradients):
            optimizer.learning_rate.set_data(Tensor(0.1 / (number + 1), ms.float32))
            optimizer(tuple(map(Tensor, step)))
        return [weight.asnumpy() for weight in weights]

    mixed = trained(chosen, frozenset({"w0", "w2"}))
    decayed, plain = trained(chosen, frozenset()), trained(none, frozenset())
    for number, weight in enumerate(mixed):
        np.testing.assert_array_equal(weight, (plain if number in (0, 2) else decayed)[number])
        assert not np.array_equal(plain[number], decayed[number])


# The whole network, and jobs.


@pytest.mark.slow
def test_gradients_of_the_whole_network() -> None:
    """Along random directions of a few weights, against central differences of its own float32 loss."""
    network = build(8, seed=3)
    network.set_train()
    chosen = [p for p in network.trainable_params() if p.name.startswith(("stem", "head", "stages.0.", "stages.2."))]
    gradient = Gradient(network, chosen).set_train()
    x, labels, one = Tensor(images(4)), Tensor(DRAW.integers(0, 10, 4, np.int32)), Tensor(1.0, ms.float32)
    loss, _, gradients = gradient(x, labels, one)
    assert float(loss.asnumpy()) == pytest.approx(np.log(10), abs=0.5)
    for parameter, slope in zip(chosen, gradients, strict=True):
        start, slope = parameter.asnumpy().copy(), slope.asnumpy().astype(float)
        step = 3e-3 * slope / np.linalg.norm(slope)  # uphill, where a difference stands out from float32's rounding
        losses = []
        for sign in (1, -1):
            parameter.set_data(Tensor((start + sign * step).astype(np.float32)))
            losses.append(float(gradient(x, labels, one)[0].asnumpy()))
        parameter.set_data(Tensor(start))
        expected = np.linalg.norm(slope)
        assert (losses[0] - losses[1]) / 6e-3 == pytest.approx(expected, rel=0.05, abs=1e-3), parameter.name


@pytest.mark.parametrize(
    ("overrides", "shape"),
    [
        (("model=resnet50", "data=synthetic"), (3, 224, 224)),
        (("model=resnet50",), (3, 32, 32)),
        (("model=resnet50", "data=synthetic", "model.image_size=48"), (3, 48, 48)),
        (("model=lenet",), (1, 32, 32)),
    ],
)
def test_the_size_of_the_image(
    composed: Callable[..., schema.Config], overrides: tuple[str, ...], shape: tuple
) -> None:
    assert composed(*overrides).model.input_shape() == shape


@pytest.mark.slow
def test_evaluation_uses_the_running_statistics(job: Callable[..., Job]) -> None:
    """A batch's neighbours do not matter in evaluation, and evaluation leaves the statistics as they are."""
    from msaccel.data.dataset import InMemoryDataset

    parts = job("model=resnet50", "model.depth=8", "data=synthetic", "model.image_size=16", "train.batch_size=8")
    pixels, labels = DRAW.integers(0, 256, (24, 3, 16, 16), np.uint8), DRAW.integers(0, 10, 24, np.int32)
    split = InMemoryDataset(pixels, labels, np.linspace(-2, 2, 256, dtype=np.float32))
    for first in (0, 8, 16):
        parts.step([split.batch(np.arange(first, first + 8))], 0.01)
    before, evaluate = parts.state(), Evaluator(parts.network)
    assert parts.network.stem.norm.moving_mean.asnumpy().any()
    whole = evaluate(split)
    halves = [evaluate(split.subset(np.arange(first, first + 12))) for first in (0, 12)]
    assert whole.loss == pytest.approx(np.mean([half.loss for half in halves]), rel=1e-5)
    for name, value in parts.state().items():
        np.testing.assert_array_equal(value, before[name], err_msg=name)


class Pooled(nn.Cell):
    """A block behind a convolution that gives it pictures, and the means of its maps (N, C)."""

    def __init__(self, kind: type, stride: int) -> None:
        super().__init__()
        layers = Layers("batch", XavierUniform())
        self.first, self.block = layers.conv(3, 32, 3), kind(layers, 32, 16, stride, "v1.5")

    def construct(self, x: Tensor) -> Tensor:
        y = self.block(self.first(x)).mean((2, 3))
        return y.reshape(y.shape[0], -1)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "stride"), [(Basic, 2), (Bottleneck, 2), pytest.param(Bottleneck, 1, marks=pytest.mark.soak)]
)
def test_a_block_in_blocks_of_channels_as_plain(kind: type, stride: int) -> None:
    x, dy, found = Tensor(images(4, side=9)), None, []
    for choice in ("unfold", "onednn"):
        kernels.use_backend(kernels.select_backend(choice, on_cpu=True))
        ms.set_seed(0)
        network = Pooled(kind, stride).set_train()
        evaluated = network.set_train(False)(x).asnumpy()
        dy = dy if dy is not None else Tensor(DRAW.standard_normal(evaluated.shape).astype(np.float32))
        y, dx, dweights = Weighted(network).set_train()(x, dy)
        statistics = [p.asnumpy() for p in network.get_parameters() if "moving" in p.name]
        found.append([evaluated, *(t.asnumpy() for t in (y, dx, *dweights)), *statistics])
    for plain_one, blocked in zip(*found, strict=True):
        assert reference.distance([blocked], [plain_one]) <= 2e-5
