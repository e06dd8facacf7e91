"""Activations against their formulas in float64, also where a careless one overflows or cancels."""

import math

import numpy as np
import pytest
from mindspore import nn
from scipy.special import expit, ndtr

from msaccel.kernels import accelerate
from tests.kernels.test_conv import run

pytestmark = pytest.mark.usefixtures("graph_mode")
A = 2 * math.sqrt(2 / math.pi)
B = 0.044715 * A
Pair = tuple[np.ndarray, np.ndarray]  # what x is multiplied by, and the derivative of the product


def gelu(x: np.ndarray) -> Pair:
    return ndtr(x), ndtr(x) + x * np.exp(-x * x / 2) / math.sqrt(2 * math.pi)


def gelu_tanh(x: np.ndarray) -> Pair:
    gate = expit(x * (A + B * x * x))
    return gate, gate + x * gate * (1 - gate) * (A + 3 * B * x * x)


def silu(x: np.ndarray) -> Pair:
    gate = expit(x)
    return gate, gate + x * gate * (1 - gate)


CASES = {
    "GELU": (lambda: nn.GELU(approximate=False), gelu),
    "GELU with tanh": (nn.GELU, gelu_tanh),
    "SiLU": (nn.SiLU, silu),
}


def computed(name: str, x: np.ndarray) -> Pair:
    """y and dx for dy = 1."""
    network = nn.SequentialCell(CASES[name][0]())
    assert len(accelerate(network).replaced) == 1
    y, dx = run(network, x, np.ones_like(x))
    return y.astype(np.float64), dx.astype(np.float64)


@pytest.mark.parametrize("name", CASES)
def test_values_and_gradients_are_those_of_the_formula(name: str) -> None:
    draw = np.random.default_rng(0).standard_normal(20_011)
    x = np.concatenate([np.linspace(-20, 20, 4001), draw, 1e-6 * draw]).astype(np.float32)
    y, dx = computed(name, x)
    gate, slope = CASES[name][1](x.astype(np.float64))
    assert (abs(y - x * gate) <= 2.5e-7 * abs(x)).all()
    assert abs(dx - slope).max() <= 2.5e-6


def test_the_negative_end_of_gelu_does_not_cancel() -> None:
    """There 1 + erf would lose all digits: at −5 PyTorch's is off by a quarter."""
    x = np.linspace(-8, -1, 2001).astype(np.float32)
    y, _ = computed("GELU", x)
    np.testing.assert_allclose(y, x * ndtr(x.astype(np.float64)), rtol=3e-6)


@pytest.mark.parametrize("name", CASES)
def test_what_is_far_off_is_zero_or_the_same(name: str) -> None:
    x = np.array([-1e30, -200, 200, 1e30], np.float32)
    y, dx = computed(name, x)
    np.testing.assert_array_equal(y, np.maximum(x, 0))
    np.testing.assert_array_equal(dx, x > 0)


@pytest.mark.parametrize("name", CASES)
def test_nan_stays(name: str) -> None:
    y, dx = computed(name, np.array([np.nan, 1], np.float32))
    assert np.isnan([y[0], dx[0]]).all() and np.isfinite([y[1], dx[1]]).all()
