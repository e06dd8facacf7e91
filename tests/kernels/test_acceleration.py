"""`accelerate` on MindSpore's own layers and on networks of MindCV: the same values, gradients and checkpoints."""

import copy
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path

import mindspore as ms
import numpy as np
import pytest
from mindcv.models.layers.activation import Swish
from mindcv.models.layers.squeeze_excite import SqueezeExcite
from mindspore import Tensor, nn, ops

from msaccel.kernels import LayerNorm, accelerate, build, restore
from msaccel.kernels.backend import native_operators
from msaccel.kernels.swapped import Swapped, SwappedConvolution, SwappedLayerNorm
from tests.kernels.test_conv import run
from tests.reference import distance
from tests.running import soak

pytestmark = pytest.mark.usefixtures("graph_mode")

LAYERS: dict[str, tuple[Callable[[], nn.Cell], tuple[int, ...]]] = {
    "convolution, same": (lambda: nn.Conv2d(4, 6, 3, 2, has_bias=True), (2, 4, 8, 9)),
    "convolution, valid": (lambda: nn.Conv2d(4, 6, 3, pad_mode="valid"), (2, 4, 8, 9)),
    "convolution, padded": (lambda: nn.Conv2d(4, 6, (3, 2), (1, 2), "pad", (0, 2, 1, 0), (2, 1)), (2, 4, 8, 9)),
    "convolution, grouped": (lambda: nn.Conv2d(4, 6, 5, group=2), (2, 4, 8, 9)),
    "convolution, depthwise": (lambda: nn.Conv2d(6, 6, 3, 2, group=6), (2, 6, 8, 9)),
    "convolution of one dimension": (lambda: nn.Conv1d(3, 5, 4, 2, has_bias=True), (2, 3, 17)),
    "transposed": (lambda: nn.Conv2dTranspose(4, 6, 3, 2, has_bias=True), (2, 4, 5, 6)),
    "transposed, padded": (lambda: nn.Conv2dTranspose(4, 6, 4, 2, "pad", 1), (2, 4, 5, 6)),
    "transposed of one dimension": (lambda: nn.Conv1dTranspose(4, 6, 3, 2), (2, 4, 5)),
    "batch norm": (lambda: nn.BatchNorm2d(5, 1e-3, 0.7), (4, 5, 6, 3)),
    "layer norm": (lambda: nn.LayerNorm((9,)), (2, 4, 8, 9)),
    "layer norm of two dimensions": (lambda: nn.LayerNorm((8, 9), 2, 2), (2, 4, 8, 9)),
    "max pooling": (lambda: nn.MaxPool2d(3, 2), (2, 4, 8, 9)),
    "max pooling, same": (lambda: nn.MaxPool2d(3, 2, "same"), (2, 4, 8, 9)),
    "max pooling, same, in every place": (lambda: nn.MaxPool2d(4, 1, "same"), (2, 4, 5, 2)),
    "max pooling, same, of large steps": (lambda: nn.MaxPool2d(2, 3, "same"), (2, 4, 7, 8)),
    "max pooling, padded": (lambda: nn.MaxPool2d(3, 2, "pad", 1), (2, 4, 8, 9)),
    "GELU": (lambda: nn.GELU(approximate=False), (3, 5, 7)),
    "GELU with tanh": (nn.GELU, (3, 5, 7)),
    "SiLU": (nn.SiLU, (3, 5, 7)),
    "MindCV's Swish": (Swish, (3, 5, 7)),
    "MindCV's squeeze and excitation": (lambda: SqueezeExcite(8, rd_channels=3), (3, 8, 5, 7)),
    "the same with a norm": (lambda: SqueezeExcite(8, norm=nn.BatchNorm2d, gate_layer=nn.HSigmoid), (3, 8, 5, 7)),
}


def filled(cell: nn.Cell) -> nn.Cell:
    """With parameters that tell every one apart."""
    draw = np.random.default_rng(1)
    for parameter in cell.get_parameters():
        parameter.set_data(Tensor(draw.uniform(0.5, 1.5, parameter.shape).astype(np.float32)))
    return cell


def results(cell: nn.Cell, x: np.ndarray, dy: np.ndarray) -> list[np.ndarray]:
    """Output, gradients, and all parameters, of which running statistics have changed."""
    return [*run(filled(cell), x, dy), *[parameter.asnumpy().copy() for parameter in cell.get_parameters()]]


def _always(*ignored: object) -> bool:
    return True


@contextmanager
def unused(layer: nn.Cell) -> Iterator[None]:
    """MindSpore's operators cannot be called in this scope, also where they would be faster."""
    swapped = [value for value in vars(layer).values() if isinstance(value, Swapped)]
    natives = [cell.native for cell in swapped]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(SwappedConvolution, "is_large", _always)
        patch.setattr(SwappedLayerNorm, "is_faster", _always)
        for cell in swapped:
            cell.native = None
        yield
        for cell, native in zip(swapped, natives, strict=True):
            cell.native = native


@pytest.mark.slow
@pytest.mark.usefixtures("mode")
@pytest.mark.parametrize(  # batch norm alone does in evaluation something else than in training
    ("name", "training"), [*[(name, True) for name in LAYERS], ("batch norm", False)]
)
def test_values_and_gradients_of_a_layer(name: str, training: bool) -> None:
    make, shape = LAYERS[name]
    layer, draw = make().set_train(training), np.random.default_rng(0)
    x = draw.standard_normal(shape).astype(np.float32)
    dy = draw.standard_normal(layer(Tensor(x)).shape).astype(np.float32)
    native = results(layer, x, dy)
    report = accelerate(layer)
    assert report.replaced and not report.left
    with unused(layer):
        found = results(layer, x, dy)
    for mine, theirs in zip(found, native, strict=True):
        assert mine.dtype == theirs.dtype and distance([mine], [theirs]) <= 2e-5
    restore(layer)
    for mine, theirs in zip(results(layer, x, dy), native, strict=True):
        np.testing.assert_array_equal(mine, theirs)


class Small(nn.Cell):
    """Layers that are replaced and layers that are not."""

    def __init__(self) -> None:
        super().__init__()
        self.features = nn.SequentialCell(
            nn.Conv2d(3, 8, 3, 2), nn.BatchNorm2d(8), nn.GELU(approximate=False), nn.MaxPool2d(2, pad_mode="same")
        )
        self.classify = nn.Dense(8, 4)

    def construct(self, x: Tensor) -> Tensor:
        return self.classify(self.features(x).mean((2, 3)))


IMAGES = np.random.default_rng(2).standard_normal((6, 3, 16, 16)).astype(np.float32)
LABELS = np.arange(6, dtype=np.int32) % 4


def gradients(network: nn.Cell, images: np.ndarray) -> list[np.ndarray]:
    """The loss and the gradients of all parameters."""

    def loss(x: Tensor, y: Tensor) -> Tensor:
        return ops.cross_entropy(network(x).astype(ms.float32), y)

    value, found = ms.value_and_grad(loss, None, network.trainable_params())(Tensor(images), Tensor(LABELS))
    return [value.asnumpy(), *[gradient.asnumpy() for gradient in found]]


def test_names_of_parameters_stay_and_checkpoints_load_both_ways(tmp_path: Path) -> None:
    native, accelerated = Small(), Small()
    accelerate(accelerated)
    assert [p.name for p in native.get_parameters()] == [p.name for p in accelerated.get_parameters()]
    for source, target in ((native, accelerated), (accelerated, native)):
        ms.save_checkpoint(filled(source), str(tmp_path / "a.ckpt"))
        assert ms.load_param_into_net(target, ms.load_checkpoint(str(tmp_path / "a.ckpt"))) == ([], [])


class Twice(nn.Cell):
    """Stands where an operator was."""

    def __init__(self, operator: ops.Primitive) -> None:
        super().__init__()
        self.operator = operator

    def construct(self, x: Tensor, weight: Tensor) -> Tensor:
        return 2 * self.operator(x, weight)


def test_what_has_taken_the_place_of_an_operator_stays(mode: None) -> None:
    layer = nn.Conv2d(3, 5, 3)
    layer.conv2d = Twice(layer.conv2d)
    x = Tensor(np.random.default_rng(0).standard_normal((1, 3, 4, 4)), ms.float32)
    before = layer(x).asnumpy()
    assert str(accelerate(layer)).startswith("Replaced: 1 Conv2D.")
    assert distance([layer(x).asnumpy()], [before]) < 1e-5
    restore(layer)
    assert isinstance(layer.conv2d, Twice) and np.array_equal(layer(x).asnumpy(), before)


def test_a_network_that_is_already_compiled_is_compiled_again() -> None:
    network = filled(Small()).set_train(False)
    native = network(Tensor(IMAGES)).asnumpy()
    accelerate(network)
    changed = network(Tensor(IMAGES)).asnumpy()
    assert (changed != native).any() and distance([changed], [native]) <= 1e-5
    restore(network)
    np.testing.assert_array_equal(network(Tensor(IMAGES)).asnumpy(), native)


def test_a_rank_that_is_not_known_is_left_to_mindspore() -> None:
    layer, x = filled(nn.Conv2d(3, 4, 3)), Tensor(IMAGES)
    native = layer(x).asnumpy()
    accelerate(layer)
    layer.set_inputs(Tensor(shape=None, dtype=ms.float32))
    np.testing.assert_array_equal(layer(x).asnumpy(), native)


def test_shapes_that_are_not_known_are_left_to_mindspore() -> None:
    network = filled(Small()).set_train(False)
    native = network(Tensor(IMAGES)).asnumpy()
    accelerate(network)
    network.set_inputs(Tensor(shape=[None, 3, None, None], dtype=ms.float32))
    for count in (6, 4):
        assert distance([network(Tensor(IMAGES[:count])).asnumpy()], [native[:count]]) <= 1e-6


@pytest.mark.slow
@pytest.mark.parametrize("name", ["layer norm", "max pooling, padded"])
def test_shapes_that_are_not_known_are_left_by_a_layer(name: str) -> None:
    make, shape = LAYERS[name]
    layer, x = filled(make()), np.random.default_rng(0).standard_normal(shape).astype(np.float32)
    native = layer(Tensor(x)).asnumpy()
    accelerate(layer)
    layer.set_inputs(Tensor(shape=[None, *shape[1:]], dtype=ms.float32))
    for count in (2, 1):
        assert distance([layer(Tensor(x[:count])).asnumpy()], [native[:count]]) <= 1e-6


@pytest.mark.usefixtures("mode")
def test_padded_pooling_of_one_image_and_of_what_is_not_finite() -> None:
    layer, x = nn.MaxPool2d(3, 2, "pad", 1), IMAGES[0].copy()
    x[0, 5, 5], x[1, :4, :4] = np.nan, -np.inf
    native = layer(Tensor(x)).asnumpy()
    assert accelerate(layer).replaced == {"max_pool": "MaxPool3DWithArgmax"}
    np.testing.assert_array_equal(layer(Tensor(x)).asnumpy(), native)


@pytest.mark.slow
@pytest.mark.usefixtures("mode")
@pytest.mark.parametrize("level", ["O1", "O2", "auto"])
def test_mixed_precision(level: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)  # where MindSpore writes the network that it rewrote
    monkeypatch.setattr(sys, "path", [*sys.path])  # to which it adds the folders of its layers
    found = []
    for prepare in (lambda _: None, accelerate):
        network = ms.amp.auto_mixed_precision(filled(Small()).set_train(), level)
        prepare(network)
        found.append(gradients(network, IMAGES))
    assert [array.dtype for array in found[0]] == [array.dtype for array in found[1]]
    assert distance(found[1], found[0]) <= 5e-3


@pytest.mark.usefixtures("mode")
def test_layers_that_mixed_precision_has_put_into_a_sequence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """There a sequence runs other cells than those it has as children."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    layers = nn.SequentialCell(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8))
    network = ms.amp.auto_mixed_precision(filled(layers).set_train(False), "O1")
    native = network(Tensor(IMAGES)).asnumpy()
    report = accelerate(network)
    swapped = [value for cell in network.cell_list for _, own in cell.cells_and_names() for value in vars(own).values()]
    assert sorted(report.replaced.values()) == ["BatchNorm", "BatchNorm", "Conv2D"]
    assert sum(isinstance(value, Swapped) for value in swapped) == 3
    assert distance([network(Tensor(IMAGES)).asnumpy()], [native]) <= 5e-3
    restore(network)
    np.testing.assert_array_equal(network(Tensor(IMAGES)).asnumpy(), native)


@pytest.mark.usefixtures("mode")
def test_statistics_of_the_batch_are_those_of_mindspores_operator() -> None:
    class Normalised(nn.Cell):
        def __init__(self) -> None:
            super().__init__()
            self.norm, self.operator = nn.BatchNorm2d(3), ops.BatchNorm(is_training=True, epsilon=1e-3, momentum=0.2)

        def construct(self, x: Tensor) -> tuple[Tensor, ...]:
            norm = self.norm
            found = self.operator(x, norm.gamma, norm.beta, norm.moving_mean, norm.moving_variance)
            return found[0], found[3], found[4]

    native, swapped = Normalised(), Normalised()
    assert accelerate(swapped).replaced["operator"] == "BatchNorm"
    for one, other in zip(swapped(Tensor(IMAGES)), native(Tensor(IMAGES)), strict=True):
        np.testing.assert_allclose(one.asnumpy(), other.asnumpy(), 1e-4, 1e-5)


@pytest.mark.parametrize("axis", [-1, 1])
def test_mean_and_variance_of_a_layer_norm_are_those_of_mindspores_operator(axis: int) -> None:
    class Normalised(nn.Cell):
        def __init__(self) -> None:
            super().__init__()
            self.operator = ops.LayerNorm(axis, axis, 1e-3)

        def construct(self, x: Tensor, gamma: Tensor, beta: Tensor) -> tuple[Tensor, ...]:
            return self.operator(x, gamma, beta)

    native, swapped = Normalised(), Normalised()
    assert accelerate(swapped).replaced == {"operator": "LayerNorm"}
    draw, images = np.random.default_rng(1).standard_normal, IMAGES.copy()
    images[0] = 3  # without any variance
    given = [Tensor(array, ms.float32) for array in (images, *draw((2, *IMAGES.shape[axis:])))]
    for one, other in zip(swapped(*given), native(*given), strict=True):
        assert one.shape == other.shape
        np.testing.assert_allclose(one.asnumpy(), other.asnumpy(), 1e-5, 1e-5)


def test_layer_norms_with_and_without_a_shift_in_one_network() -> None:
    """Their gradients have two and three outputs."""

    class Both(nn.Cell):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.second = LayerNorm(16), nn.LayerNorm((16,), epsilon=1e-5)

        def construct(self, x: Tensor) -> Tensor:
            return self.second(self.first(x))

    with native_operators():
        network, x = Both(), IMAGES[:, 0, 0]
    native = gradients(network, x)
    accelerate(network)
    assert distance(gradients(network, x), native) <= 1e-5


@pytest.mark.slow
@pytest.mark.usefixtures("mode")
def test_other_types_and_ranks_are_left_to_mindspore() -> None:
    for layer, x in (
        (nn.BatchNorm1d(5), IMAGES[:, :, :5, 0].reshape(-1, 5)),
        (nn.BatchNorm2d(3, dtype=ms.float16), IMAGES.astype(np.float16)),
        (nn.MaxPool2d(3, 1), IMAGES.astype(np.float64)),
        (nn.LayerNorm(IMAGES.shape[3:], dtype=ms.float16), IMAGES.astype(np.float16)),
        (nn.MaxPool2d(3, 2, "pad", 1), IMAGES.astype(np.float64)),
        (nn.GELU(), IMAGES.astype(np.float64)),
    ):
        layer.set_train()
        native = layer(Tensor(x)).asnumpy()
        accelerate(layer)
        np.testing.assert_array_equal(layer(Tensor(x)).asnumpy(), native)


@pytest.mark.slow
@pytest.mark.usefixtures("mode")
@pytest.mark.parametrize("name", ["convolution, same", "transposed", "batch norm", "max pooling", "GELU"])
def test_layers_that_are_told_to_compute_in_float16(name: str) -> None:
    """Their inputs arrive in float32: in PyNative mode each operator casts them when it is called."""
    make, shape = LAYERS[name]
    x, layer = Tensor(np.random.default_rng(0).standard_normal(shape), ms.float32), filled(make()).to_float(ms.float16)
    native = layer.set_train()(x)
    accelerate(filled(layer))
    swapped = layer(x)
    assert swapped.dtype == native.dtype == ms.float16
    assert distance([swapped.asnumpy()], [native.asnumpy()]) <= 5e-3


@pytest.mark.usefixtures("mode")
def test_an_image_without_a_batch_dimension_has_mindspores_error() -> None:
    layer = nn.Conv2d(3, 4, 3)
    accelerate(layer)
    with pytest.raises(ValueError, match="must be equal to 4, but got 3"):
        layer(Tensor(np.zeros((3, 8, 8), np.float32)))


@pytest.mark.usefixtures("mode")
@pytest.mark.parametrize("name", ["convolution, same", "convolution of one dimension", "transposed", "batch norm"])
def test_an_empty_batch_is_left_to_mindspore(name: str) -> None:
    """Batch norm in evaluation: in training MindSpore's takes statistics of nothing from memory that nobody wrote."""
    make, (_, *others) = LAYERS[name]
    layer, x = make().set_train(False), np.zeros((0, *others), np.float32)
    dy = np.zeros(layer(Tensor(x)).shape, np.float32)
    native = results(layer, x, dy)
    assert accelerate(layer).replaced
    for mine, theirs in zip(results(layer, x, dy), native, strict=True):
        np.testing.assert_array_equal(mine, theirs)


@pytest.mark.usefixtures("mode")
@pytest.mark.parametrize("name", ["GELU", "GELU with tanh", "SiLU"])
def test_activations_get_another_class_until_they_are_restored(name: str) -> None:
    layer, x = LAYERS[name][0](), Tensor(np.resize(IMAGES, (1024, 16)))
    native, kind = layer(x).asnumpy(), type(layer)
    assert accelerate(layer).replaced == {"": kind.__name__}
    assert (copy.deepcopy(layer)(x).asnumpy() == layer(x).asnumpy()).all() and (layer(x).asnumpy() != native).any()
    restore(layer)
    assert type(layer) is kind and not hasattr(layer, "fast")
    np.testing.assert_array_equal(layer(x).asnumpy(), native)


SMALL, LARGE = (1, 4, 6, 6), (4, 4, 64, 64)
LEFT_IN_PYNATIVE = {
    "a small convolution": (lambda: nn.Conv2d(4, 4, 3), SMALL, True),
    "a large convolution": (lambda: nn.Conv2d(4, 4, 3), LARGE, False),
    "few values, many products": (lambda: nn.Conv2d(256, 64, 3), (1, 256, 8, 8), False),
    "a convolution of 1 × 1": (lambda: nn.Conv2d(4, 4, 1), LARGE, True),
    "batch norm": (lambda: nn.BatchNorm2d(4).set_train(), SMALL, False),
    "layer norm": (lambda: nn.LayerNorm((64,)), LARGE, True),
}


@pytest.mark.parametrize(("make", "shape", "left"), LEFT_IN_PYNATIVE.values(), ids=LEFT_IN_PYNATIVE)
@pytest.mark.parametrize("compiled", [False, True], ids=["called", "compiled"])
def test_in_pynative_mode_what_is_faster_there_is_left_to_mindspore(
    make: Callable[[], nn.Cell], shape: tuple[int, ...], left: bool, compiled: bool, graph_mode: None
) -> None:
    """A function compiled by `ms.jit` calls no operator from Python, so it has all of ours."""
    layer = filled(make())
    accelerate(layer)
    for swapped in vars(layer).values():
        if isinstance(swapped, Swapped):
            swapped.native = None

    def called(x: Tensor) -> Tensor:
        return layer(x)

    call = ms.jit(called) if compiled else called
    ms.set_context(mode=ms.PYNATIVE_MODE)
    try:
        with pytest.raises(TypeError) if left and not compiled else nullcontext():
            call(Tensor(np.resize(IMAGES, shape))).asnumpy()
    finally:
        ms.set_context(mode=ms.GRAPH_MODE)


def test_a_copy_is_accelerated_and_independent() -> None:
    network = filled(Small()).set_train(False)
    accelerate(network)
    twin = copy.deepcopy(network)
    np.testing.assert_array_equal(twin(Tensor(IMAGES)).asnumpy(), network(Tensor(IMAGES)).asnumpy())
    restore(twin)
    assert isinstance(vars(network.features[0])["conv2d"], Swapped)
    assert not isinstance(vars(twin.features[0])["conv2d"], Swapped)


def test_what_is_exported_after_restore_names_no_library(tmp_path: Path) -> None:
    network, x, contents = filled(Small()).set_train(False), Tensor(IMAGES), []
    native = network(x).asnumpy()
    accelerate(network)
    for name in ("accelerated", "restored"):
        ms.export(network, x, file_name=str(tmp_path / name), file_format="MINDIR")
        contents.append((tmp_path / f"{name}.mindir").read_bytes())
        restore(network)
    assert build.NAME.encode() in contents[0] and b"msaccel" not in contents[1]
    loaded = nn.GraphCell(ms.load(str(tmp_path / "restored.mindir")))
    np.testing.assert_array_equal(loaded(x).asnumpy(), native)


class Losses(ms.train.Callback):
    def __init__(self) -> None:
        self.seen: list[float] = []

    def step_end(self, run_context: ms.train.RunContext) -> None:
        self.seen.append(float(run_context.original_args().net_outputs.asnumpy()))


@pytest.mark.slow
@pytest.mark.usefixtures("mode")
def test_model_train_has_the_same_losses() -> None:
    curves = []
    for prepare in (lambda _: None, accelerate):
        network, losses = filled(Small()), Losses()
        prepare(network)
        data = ms.dataset.NumpySlicesDataset({"x": IMAGES, "y": LABELS}, shuffle=False).batch(6)
        optimizer = nn.Momentum(network.trainable_params(), 0.05, 0.9)
        model = ms.train.Model(network, nn.CrossEntropyLoss(), optimizer)
        model.train(4, data, callbacks=[losses], dataset_sink_mode=False)
        curves.append(losses.seen)
    assert curves[1] == pytest.approx(curves[0], rel=1e-5) and curves[0][-1] < curves[0][0]


@pytest.mark.slow
@pytest.mark.parametrize("name", ["mobilenet_v2_035_96", *soak("resnet18", "shufflenet_v2_x0_5", "densenet121")])
def test_gradients_of_a_network_of_mindcv(name: str) -> None:
    mindcv = pytest.importorskip("mindcv")
    ms.set_seed(3)
    network, images = mindcv.create_model(name, num_classes=4).set_train(), IMAGES.repeat(2, 2).repeat(2, 3)
    native = gradients(network, images)
    assert accelerate(network).replaced
    found = gradients(network, images)
    assert found[0] == pytest.approx(native[0], rel=1e-5)
    # Rounding may move a value across the kink of a ReLU: an input that differs by 1e-7 changes gradients as much.
    assert 0 < distance(found, native) <= 0.03
