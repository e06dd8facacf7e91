"""GPT: what it computes against NumPy in float64, its sizes, its initialisation, and its dropout."""

from dataclasses import replace

import mindspore as ms
import numpy as np
import pytest
from mindspore import Tensor, nn, ops

from msaccel import models
from msaccel.models.gpt import GptSettings, dropout, network
from msaccel.models.gpt.dropout import BlockKeys, Dropout
from msaccel.step.graphs import Gradient
from tests import reference

pytestmark = pytest.mark.usefixtures("graph_mode")

NANO = GptSettings(
    name="gpt", init="default", classes=65, layers=4, heads=4, width=128, block=64, tied=True, dropout=0.0
)
TINY = replace(NANO, classes=11, layers=2, heads=2, width=8, block=6)


def build(settings: GptSettings, seed: int = 0) -> nn.Cell:
    ms.set_seed(seed)
    return models.build(settings)


def rough(settings: GptSettings) -> nn.Cell:
    """With weights so large that no part of the network is nearly linear."""
    network, draw = build(settings), np.random.default_rng(0).normal
    for weight in network.trainable_params():
        weight.set_data(Tensor(draw(weight.name.endswith("gamma"), 0.5, weight.shape).astype(np.float32)))
    return network


def weights_of(network: nn.Cell) -> dict[str, np.ndarray]:
    return {weight.name: weight.asnumpy().astype(np.float64) for weight in network.trainable_params()}


def normalised(x: np.ndarray, gamma: np.ndarray) -> np.ndarray:
    centred = x - x.mean(-1, keepdims=True)
    return centred / np.sqrt((centred**2).mean(-1, keepdims=True) + 1e-5) * gamma


def logits_of(weights: dict[str, np.ndarray], characters: np.ndarray, settings: GptSettings) -> np.ndarray:
    """nanoGPT's forward pass, with loops over blocks and heads."""
    length = characters.shape[1]
    x = weights["embedding"][characters] + weights["positions"][:length]
    later, size = np.triu(np.ones((length, length), bool), 1), settings.width // settings.heads
    for number in range(settings.layers):
        of = {name.split(".", 2)[2]: w for name, w in weights.items() if name.startswith(f"blocks.{number}.")}
        q, k, v = np.split(normalised(x, of["norm1.gamma"]) @ of["attention.qkv.weight"].T, 3, -1)
        heads = []
        for columns in (slice(head * size, (head + 1) * size) for head in range(settings.heads)):
            scores = q[..., columns] @ k[..., columns].swapaxes(1, 2) / np.sqrt(size)
            shares = np.exp(np.where(later, -np.inf, scores))
            heads.append(shares / shares.sum(-1, keepdims=True) @ v[..., columns])
        x = x + np.concatenate(heads, -1) @ of["attention.out.weight"].T
        wide = normalised(x, of["norm2.gamma"]) @ of["wide.weight"].T
        gelu = 0.5 * wide * (1 + np.tanh(np.sqrt(2 / np.pi) * (wide + 0.044715 * wide**3)))
        x = x + gelu @ of["narrow.weight"].T
    return normalised(x, weights["norm.gamma"]) @ weights.get("head.weight", weights["embedding"]).T


def loss_of(weights: dict[str, np.ndarray], characters: np.ndarray, labels: np.ndarray, settings: GptSettings) -> float:
    return reference.cross_entropy(logits_of(weights, characters, settings).reshape(labels.size, -1), labels.ravel())


def texts(settings: GptSettings, count: int = 3) -> tuple[np.ndarray, np.ndarray]:
    drawn = np.random.default_rng(1).integers(0, settings.classes, (count, settings.block + 1), np.int32)
    return np.ascontiguousarray(drawn[:, :-1]), np.ascontiguousarray(drawn[:, 1:])


@pytest.mark.parametrize("tied", [True, False])
def test_logits(choice: str, tied: bool) -> None:
    settings = replace(TINY, tied=tied)
    network, (characters, _) = rough(settings), texts(settings)
    expected = logits_of(weights_of(network), characters, settings)
    assert reference.distance([network(Tensor(characters)).asnumpy()], [expected]) <= 1e-6


@pytest.mark.parametrize("tied", [True, False])
def test_gradients(choice: str, tied: bool) -> None:
    """Along random directions in each weight they are differences of the loss in float64."""
    settings = replace(TINY, tied=tied)
    network, (characters, labels) = rough(settings), texts(settings)
    weights, rng = weights_of(network), np.random.default_rng(2)
    parameters = ms.ParameterTuple(network.trainable_params())
    loss, _, found = Gradient(network, parameters)(Tensor(characters), Tensor(labels), Tensor(1.0, ms.float32))
    assert float(loss.asnumpy()) == pytest.approx(loss_of(weights, characters, labels, settings), rel=1e-6)
    for name, gradient in zip(weights, found, strict=True):
        direction = rng.standard_normal(weights[name].shape)
        sides = [loss_of(weights | {name: weights[name] + step * direction}, characters, labels, settings)
                 for step in (1e-5, -1e-5)]  # fmt: skip
        scale = np.linalg.norm(gradient.asnumpy()) * np.linalg.norm(direction)
        assert np.sum(gradient.asnumpy() * direction) == pytest.approx((sides[0] - sides[1]) / 2e-5, abs=1e-5 * scale)


def test_a_character_changes_nothing_before_it() -> None:
    network, (characters, _) = rough(TINY), texts(TINY)
    before = network(Tensor(characters)).asnumpy()
    characters[:, 4] = (characters[:, 4] + 1) % 11
    after = network(Tensor(characters)).asnumpy()
    np.testing.assert_array_equal(after[:, :4], before[:, :4])
    assert (after[:, 4:] != before[:, 4:]).any(-1).all()


def test_it_has_the_size_of_nanogpts() -> None:
    """Without its positions, as nanoGPT counts, these are 0.80 million."""
    weights = weights_of(build(NANO))
    assert len(weights) == 2 + 6 * 4 + 1
    assert sum(weight.size for weight in weights.values()) == 804_096 == 795_904 + 64 * 128
    assert "head.weight" in weights_of(build(replace(NANO, tied=False)))


def test_weights_are_drawn_as_in_nanogpt() -> None:
    for init, sigma in (("default", 0.02), ("normal(0.01)", 0.01)):
        for name, values in weights_of(build(replace(NANO, init=init))).items():
            if name.endswith("gamma"):
                assert (values == 1).all()
            else:
                ends_a_branch = name.endswith(("out.weight", "narrow.weight"))
                expected = sigma / np.sqrt(8) if ends_a_branch else sigma
                assert values.std() == pytest.approx(expected, rel=4 / np.sqrt(2 * values.size)), name


def test_only_matrices_are_decayed() -> None:
    network = build(TINY)
    matrices = {name for name, weight in weights_of(network).items() if weight.ndim == 2}
    assert models.undecayed(network) == weights_of(network).keys() - matrices
    assert {"embedding", "positions"} <= matrices and len(models.undecayed(network)) == 5


@pytest.mark.parametrize(("width", "heads", "instead"), [(130, 4, 128), (2, 4, 4)])
def test_heads_divide_the_width(width: int, heads: int, instead: int) -> None:
    (said,) = replace(NANO, width=width, heads=heads).refusals()
    assert said == (
        f"model.width={width} cannot be divided among model.heads={heads}; write model.width={instead} or another "
        "model.heads."
    )
    assert not list(NANO.refusals())


class Dropped(nn.Cell):
    """Dropout of ones, (N, 64) characters to (N, 4096)."""

    def __init__(self, rate: float, place: int, seed: int) -> None:
        super().__init__()
        self.keys, self.drop = BlockKeys(64, seed), Dropout(rate, place, 4096)

    def construct(self, x: Tensor) -> Tensor:
        return self.drop(ops.ones((x.shape[0], 4096), ms.float32), self.keys(x))


def dropped(characters: np.ndarray, rate: float = 0.2, place: int = 0, seed: int = 0) -> np.ndarray:
    return Dropped(rate, place, seed).set_train()(Tensor(characters)).asnumpy()


def test_dropout_is_a_function_of_the_block() -> None:
    characters, _ = texts(NANO, 12)
    characters[1] = characters[0]
    characters[2] = characters[0]
    characters[2, 5] = (characters[2, 5] + 1) % 65
    found = dropped(characters)
    np.testing.assert_array_equal(found[0], found[1])
    np.testing.assert_array_equal(dropped(characters[3:5]), found[3:5])  # in another micro-batch
    np.testing.assert_allclose(np.unique(found), [0, 1.25])
    assert (found == 0).mean(1) == pytest.approx(np.full(12, 0.2), abs=4 * np.sqrt(0.16 / 4096))
    others = [found[2], found[3], dropped(characters, place=1)[0], dropped(characters, seed=1)[0]]
    for other in others:  # independent: both are zero where chance has it so
        assert ((found[0] == 0) & (other == 0)).mean() == pytest.approx(0.04, abs=5 * np.sqrt(0.04 / 4096))


def test_masks_and_random_numbers_are_made_once_and_only_where_they_are_read(choice: str) -> None:
    caches = (network.mask.fn, dropout.numbers.fn)
    for function in caches:
        function.cache_clear()

    def made(of: nn.Cell) -> list[int]:
        of(Tensor(texts(TINY)[0]))
        return [function.cache_info().misses for function in caches]

    dropping, composed = build(replace(TINY, dropout=0.5)), int(choice != "onednn")
    assert made(build(TINY).set_train()) == made(dropping.set_train(False)) == [composed, 0]
    assert made(dropping.set_train()) == [1, 1 + 3 * TINY.layers]


def test_dropout_is_for_training_alone() -> None:
    network, (characters, _) = rough(replace(TINY, dropout=0.5)), texts(TINY)
    expected = rough(TINY).set_train()(Tensor(characters)).asnumpy()
    np.testing.assert_array_equal(network.set_train(False)(Tensor(characters)).asnumpy(), expected)
    assert np.abs(network.set_train()(Tensor(characters)).asnumpy() - expected).max() > 0.1
