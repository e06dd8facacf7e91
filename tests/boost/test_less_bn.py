"""`less_bn`: which batch norms go, and what becomes of dense layers and gradients.

A docstring that begins with "Against the documentation" is a "yes" in `docs/boost.md`.
"""

from __future__ import annotations

from collections.abc import Iterator

import mindspore as ms
import numpy as np
import pytest
from mindspore import Tensor, nn
from mindspore.boost.less_batch_normalization import CommonHeadLastFN

from tests.boost.training import (
    IMAGES,
    LABELS,
    ROWS,
    AugmentedBlock,
    Dense,
    Residual,
    Stack,
    manual,
    model,
    moved,
    values,
)

BOTTLENECK, BASIC = (1, 3, 1), (3, 3)


@pytest.fixture
def pynative() -> Iterator[None]:
    """MindSpore's own default mode."""
    ms.set_context(mode=ms.PYNATIVE_MODE)
    yield
    ms.set_context(mode=ms.GRAPH_MODE)


def norms_of(network: nn.Cell) -> dict[str, nn.BatchNorm2d]:
    return {name: cell for name, cell in network.cells_and_names() if isinstance(cell, nn.BatchNorm2d)}


def norms_that_train(network: nn.Cell) -> set[str]:
    """The batch norms whose statistics, scale and shift move in one update."""
    norms = norms_of(network)
    train = model(network, manual(less_bn={"gc_flag": False})).train_network
    before = {name: norm.moving_mean.asnumpy().copy() for name, norm in norms.items()}
    weights = {name: values(norm) for name, norm in norms.items()}
    train(IMAGES, LABELS)
    found = {name for name, norm in norms.items() if not np.array_equal(norm.moving_mean.asnumpy(), before[name])}
    assert found == {name for name, norm in norms.items() if any(moved(norm, weights[name]))}
    return found


def test_bottleneck_blocks() -> None:
    """Of a bottleneck block only the third norm stays; the shortcut's goes, too."""
    assert norms_that_train(Residual(BOTTLENECK)) == {"norm", "blocks.0.norms.2", "blocks.1.norms.2"}


def test_basic_blocks() -> None:
    """Against the documentation: of a block of two convolutions only the second norm stays; the stem's goes, too."""
    assert norms_that_train(Residual(BASIC)) == {"blocks.0.norms.1", "blocks.1.norms.1"}


@pytest.mark.parametrize("kernels", [BOTTLENECK, BASIC])
def test_augmented_addition(kernels: tuple[int, ...]) -> None:
    """Against the documentation: of blocks that add their input by `+=` every norm stays."""
    network = Residual(kernels, AugmentedBlock)
    assert norms_that_train(network) == {*norms_of(network)}


def test_a_network_of_mindcv() -> None:
    """Against the documentation: its residual blocks add by `+=`, so every norm stays."""
    resnet = pytest.importorskip("mindcv.models.resnet")
    network = resnet.ResNet(resnet.BasicBlock, [1, 1, 1, 1], num_classes=3)
    norms = {*norms_of(network)}
    assert norms_that_train(network) == norms and len(norms) == 12


def test_no_blocks() -> None:
    """Without residual blocks no norm goes."""
    assert norms_that_train(Residual(())) == {"norm"}


def test_norms_are_gone_from_predictions() -> None:
    """A norm that is gone is ignored in predictions, too, whatever its weights are."""
    network = Residual(BOTTLENECK)
    built = model(network, manual(less_bn={}))
    before = built.predict(IMAGES).asnumpy()
    network.blocks[0].norms[0].gamma.set_data(Tensor(np.full(8, 5), ms.float32))
    np.testing.assert_array_equal(built.predict(IMAGES).asnumpy(), before)
    network.blocks[0].norms[2].gamma.set_data(Tensor(np.full(8, 5), ms.float32))
    assert not np.array_equal(built.predict(IMAGES).asnumpy(), before)


def test_pynative(pynative: None) -> None:
    """In PyNative mode, MindSpore's default, every norm stays; dense layers are replaced all the same."""
    network = Residual(BOTTLENECK)
    norms = {*norms_of(network)}
    assert norms_that_train(network) == norms
    assert len(norms) == 8
    assert type(network.head) is CommonHeadLastFN


def test_last_layer() -> None:
    """The last dense layer loses its bias and is normalised; logits begin between -1 and 1."""
    network = Dense()
    built = model(network, manual(less_bn={}))
    assert type(network.head) is CommonHeadLastFN
    assert [parameter.name.rpartition(".")[2] for parameter in network.head.trainable_params()] == [
        "weight",
        "multiplier",
    ]
    assert np.abs(built.predict(1e6 * ROWS).asnumpy()).max() <= 1 + 1e-6


class Nested(nn.Cell):
    """Two cells with two dense layers each, and a dense layer."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second, self.head = Dense(), Dense(), nn.Dense(3, 3)

    def construct(self, rows: Tensor) -> Tensor:
        return self.head(self.first(rows) + self.second(rows))


def test_last_layer_of_every_cell() -> None:
    """Not only the network's last dense layer is replaced, but the last one in every cell that has any."""
    network = Nested()
    model(network, manual(less_bn={}))
    replaced = {name for name, cell in network.cells_and_names() if isinstance(cell, CommonHeadLastFN)}
    assert replaced == {"first.head", "second.head", "head"}


def test_sequential_cell() -> None:
    """In a `SequentialCell` the replacement is not called, and the layer that is called is never trained."""
    network = Stack(2)
    first, last = network.layers
    train = model(network, manual(less_bn={})).train_network
    before, before_first = values(last), values(first)
    for _ in range(3):
        train(ROWS, LABELS)
    assert not any(moved(last, before))
    assert all(moved(first, before_first))


def test_fn_flag() -> None:
    """With `fn_flag` off the dense layers stay as they are."""
    network = Dense()
    model(network, manual(less_bn={"fn_flag": False}))
    assert type(network.head) is nn.Dense


@pytest.mark.parametrize("width", [5, 16])
def test_centralized_gradients(width: int) -> None:
    """Gradients are centralized where the inputs are a multiple of 16; a CPU has no operator for that."""
    network = Dense(width)
    train = model(network, manual(less_bn={"fn_flag": False})).train_network
    assert train.optimizer.grad_centralization_flags == (True, True, False, False)
    if width == 5:
        train(ROWS, LABELS)
    else:
        with pytest.raises(RuntimeError, match=r"Unsupported op \[Centralization\] on CPU"):
            train(ROWS, LABELS)


def test_gc_flag() -> None:
    """With `gc_flag` off such a network trains on a CPU."""
    network = Dense(16)
    train = model(network, manual(less_bn={"fn_flag": False, "gc_flag": False})).train_network
    before = values(network)
    train(ROWS, LABELS)
    assert all(moved(network, before))
