"""Layer norm, GELU, dense layers without a bias and the loss of sequences, against their definitions in float64."""

import mindspore as ms
import numpy as np
import pytest
from mindspore import Tensor

from msaccel.kernels import CrossEntropy, Dense, Gelu, LayerNorm
from tests import reference
from tests.kernels.test_conv import run

pytestmark = pytest.mark.usefixtures("graph_mode")


def drawn(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


@pytest.mark.parametrize(("rows", "width"), [(1, 2), (12, 16), (50, 128)])
def test_layer_norm_and_its_gradients(rows: int, width: int) -> None:
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


def test_gelu_and_its_gradient() -> None:
    x, dy = np.linspace(-12, 12, 97, dtype=np.float32), drawn(97)
    inner, slope = np.sqrt(2 / np.pi) * (x + 0.044715 * x.astype(float) ** 3), np.sqrt(2 / np.pi)
    tanh = np.tanh(inner)
    dx = dy * (0.5 * (1 + tanh) + 0.5 * x * (1 - tanh**2) * slope * (1 + 3 * 0.044715 * x.astype(float) ** 2))
    found = run(Gelu(), x, dy)
    np.testing.assert_allclose(found[0], 0.5 * x * (1 + tanh), atol=2e-6)
    np.testing.assert_allclose(found[1], dx, atol=4e-6)


def test_gelu_of_what_is_far_off_is_zero_or_the_same() -> None:
    x = np.array([-1e4, -100, 100, 1e4], np.float32)
    found, gradient = run(Gelu(), x, np.ones(4, np.float32))
    np.testing.assert_array_equal(found, [0, 0, 100, 1e4])
    np.testing.assert_array_equal(gradient, [0, 0, 1, 1])


def test_gelu_in_float16_has_a_gradient_where_the_square_overflows() -> None:
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
