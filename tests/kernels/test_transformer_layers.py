"""The layers of a transformer and the loss of sequences, against their definitions in float64."""

import mindspore as ms
import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from mindspore import Tensor, nn

from msaccel.kernels import CrossEntropy, Dense, Embedding, Gelu, LayerNorm
from tests import reference
from tests.kernels import operators
from tests.kernels.test_bf16 import rounded
from tests.kernels.test_conv import run

pytestmark = pytest.mark.usefixtures("graph_mode")


def drawn(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


@pytest.mark.parametrize(("rows", "width"), [(1, 2), (12, 16), (50, 128), (67, 131)])
def test_layer_norm_and_its_gradients(choice: str, rows: int, width: int) -> None:
    layer, x, dy = LayerNorm(width), 3 + 2 * drawn(rows, width), drawn(rows, width, seed=1)
    gamma = 1 + drawn(width, seed=2)
    layer.gamma.set_data(Tensor(gamma))
    centred = x.astype(float) - x.astype(float).mean(1, keepdims=True)
    deviation = 1 / np.sqrt((centred**2).mean(1, keepdims=True) + 1e-5)
    normalised, d = centred * deviation, dy * gamma.astype(float)
    dx = deviation * (d - d.mean(1, keepdims=True) - normalised * (d * normalised).mean(1, keepdims=True))
    expected = [normalised * gamma, dx, (dy * normalised).sum(0)]
    for found, wanted in zip(run(layer, x, dy), expected, strict=True):
        np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-5)


def test_gelu_and_its_gradient(choice: str) -> None:
    x, dy = np.linspace(-12, 12, 97, dtype=np.float32), drawn(97)
    inner, slope = np.sqrt(2 / np.pi) * (x + 0.044715 * x.astype(float) ** 3), np.sqrt(2 / np.pi)
    tanh = np.tanh(inner)
    dx = dy * (0.5 * (1 + tanh) + 0.5 * x * (1 - tanh**2) * slope * (1 + 3 * 0.044715 * x.astype(float) ** 2))
    found = run(Gelu(), x, dy)
    np.testing.assert_allclose(found[0], 0.5 * x * (1 + tanh), atol=2e-6)
    np.testing.assert_allclose(found[1], dx, atol=4e-6)


def test_gelu_of_what_is_far_off_is_zero_or_the_same(choice: str) -> None:
    x = np.array([-1e4, -100, 100, 1e4], np.float32)
    found, gradient = run(Gelu(), x, np.ones(4, np.float32))
    np.testing.assert_array_equal(found, [0, 0, 100, 1e4])
    np.testing.assert_array_equal(gradient, [0, 0, 1, 1])


def test_gelu_in_float16_has_a_gradient_where_the_square_overflows(choice: str) -> None:
    x = np.array([-300, 300], np.float16)
    found, gradient = run(Gelu(), x, np.ones(2, np.float16))
    np.testing.assert_array_equal(found, [0, 300])
    np.testing.assert_array_equal(gradient, [0, 1])


def test_a_dense_layer_without_a_bias(choice: str) -> None:
    layer, x, dy = Dense(7, 5, has_bias=False), drawn(9, 7), drawn(9, 5, seed=1)
    assert [weight.name for weight in layer.trainable_params()] == ["weight"]
    weight = layer.weight.asnumpy().astype(float)
    expected = [x @ weight.T, dy @ weight, dy.T.astype(float) @ x]
    assert reference.distance(run(layer, x, dy), expected) <= 1e-6


def test_the_loss_of_sequences_is_the_mean_over_all_labels(choice: str) -> None:
    logits, labels = drawn(3, 5, 7), np.random.default_rng(1).integers(0, 7, (3, 5), np.int32)
    loss, right = CrossEntropy()(Tensor(logits), Tensor(labels, ms.int32))
    flat = logits.reshape(15, 7).astype(float)
    assert float(loss.asnumpy()) == pytest.approx(reference.cross_entropy(flat, labels.ravel()), rel=1e-6)
    assert right.asnumpy() == (flat.argmax(1) == labels.ravel()).sum()


def attended(qkv: np.ndarray, dy: np.ndarray, heads: int, block: int, products: int = 0) -> list[np.ndarray]:
    """y and dqkv."""
    y, normalisers, dqkv = (np.full(shape, np.nan, np.float32) for shape in (dy.shape, (len(dy), heads), qkv.shape))
    how = np.array([heads, block, products], np.int32)
    operators.call("attention", qkv, how, y, normalisers)
    operators.call("attention_gradient", dy, y, qkv, normalisers, how, dqkv)
    return [y, dqkv]


@st.composite
def attentions(draw: st.DrawFn) -> tuple[int, int, int, int]:
    """Blocks, heads, positions in a block, and elements of a head."""
    return draw(st.integers(1, 3)), draw(st.integers(1, 3)), draw(st.integers(1, 70)), draw(st.integers(1, 40))


@settings(max_examples=40, deadline=None, derandomize=True)
@given(sizes=attentions(), seed=st.integers(0, 9))
@example(sizes=(2, 4, 64, 32), seed=0)
@example(sizes=(1, 1, 257, 16), seed=0)
def test_attention_and_its_gradient(sizes: tuple[int, int, int, int], seed: int) -> None:
    blocks, heads, block, size = sizes
    width, rows = heads * size, blocks * block
    qkv, dy = 2 * drawn(rows, 3 * width, seed=seed), drawn(rows, width, seed=seed + 10)
    y, dqkv = attended(qkv, dy, heads, block)
    # (N · T, H · D) to (N, H, T, D)
    q, k, v, d = (
        part.astype(float).reshape(blocks, block, heads, size).swapaxes(1, 2) for part in (*np.split(qkv, 3, 1), dy)
    )
    scores = np.where(np.tri(block, dtype=bool), q @ k.swapaxes(2, 3) / np.sqrt(size), -np.inf)
    exponentials = np.exp(scores - scores.max(3, keepdims=True))
    weights = exponentials / exponentials.sum(3, keepdims=True)
    of_weights = d @ v.swapaxes(2, 3)
    of_scores = weights * (of_weights - (weights * of_weights).sum(3, keepdims=True)) / np.sqrt(size)
    gradients = [of_scores @ k, of_scores.swapaxes(2, 3) @ q, weights.swapaxes(2, 3) @ d]
    flat = [part.swapaxes(1, 2).reshape(rows, width) for part in (weights @ v, *gradients)]
    assert reference.distance([y], flat[:1]) <= 1e-6
    assert reference.distance([dqkv], [np.concatenate(flat[1:], 1)]) <= 4e-6


def test_no_position_attends_to_a_later_one() -> None:
    qkv, dy = drawn(40, 48), drawn(40, 16, seed=1)
    y, _ = attended(qkv, dy, 2, 40)
    qkv[23:] += 1
    changed, _ = attended(qkv, dy, 2, 40)
    np.testing.assert_array_equal(y[:23], changed[:23])
    assert (y[23:] != changed[23:]).any(1).all()


@pytest.mark.parametrize("products", [1, 2])
def test_attention_in_bfloat16_rounds_its_factors(products: int) -> None:
    qkv, dy = drawn(40, 48), drawn(40, 16, seed=1)
    factors = [rounded(factor).astype(np.float32) for factor in (qkv, dy)]
    found, of_rounded = attended(qkv, dy, 2, 40, products), attended(*factors, 2, 40, products)
    for one, other in zip(found, of_rounded, strict=True):
        np.testing.assert_array_equal(one, other)
    assert 1e-4 < reference.distance(of_rounded, attended(*factors, 2, 40)) < 4e-3  # weights


@pytest.mark.parametrize("large", [1e4, -1e4])
def test_attention_of_large_scores_is_finite(large: float) -> None:
    qkv = np.ones((8, 12), np.float32)
    qkv[:, :4] *= large
    y, dqkv = attended(qkv, np.ones((8, 4), np.float32), 1, 8)
    np.testing.assert_allclose(y, 1, rtol=1e-6)
    assert np.isfinite(dqkv).all()


class Embedded(nn.Cell):
    """An embedding with its weights, as a function of a tensor that is added, so that `run` can differentiate it."""

    def __init__(self, characters: np.ndarray, *weights: np.ndarray) -> None:
        super().__init__()
        self.embed, self.characters = Embedding(), Tensor(characters)
        self.table, self.positions = (ms.Parameter(Tensor(weight)) for weight in weights)

    def construct(self, x: Tensor) -> Tensor:
        return x + self.embed(self.characters, self.table, self.positions)


def test_embeddings_and_their_gradients(choice: str) -> None:
    characters = np.random.default_rng(0).integers(0, 7, (5, 3), np.int32)
    table, positions, dy = drawn(7, 18), drawn(3, 18, seed=1), drawn(15, 18, seed=2)
    with pytest.raises(ValueError, match="3 characters in a sample, and 4 positions"):
        Embedded(characters, table, drawn(4, 18))(Tensor(dy))
    y, _, dtable, dpositions = run(Embedded(characters, table, positions), np.zeros_like(dy), dy)
    np.testing.assert_array_equal(y, (table[characters] + positions).reshape(15, 18))
    chosen = np.eye(7)[characters.ravel()]
    assert reference.distance([dtable, dpositions], [chosen.T @ dy, dy.reshape(5, 3, 18).sum(0)]) <= 1e-6
