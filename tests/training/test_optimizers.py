"""The optimizers against their definitions in float64, under a rate that changes at every step."""

from functools import partial

import mindspore as ms
import numpy as np
import pytest
from mindspore import Parameter, Tensor

from msaccel import schema
from msaccel.training import optimizers
from tests import reference

pytestmark = pytest.mark.usefixtures("graph_mode")

RATES = [0.1, 0.05, 0.2, 0.0, 0.1, 0.3, 0.01, 0.1]
BETAS = (0.8, 0.99)
DRAW = np.random.default_rng(0).standard_normal
WEIGHTS = [DRAW((5, 4)).astype(np.float32), DRAW(7).astype(np.float32)]
NAMES = ("dense.weight", "norm.gamma")  # MindSpore itself would not decay the second
GRADIENTS = [[DRAW(w.shape).astype(np.float32) for w in WEIGHTS] for _ in RATES]


def momentum(nesterov: bool, decay: float) -> schema.MomentumSettings:
    return schema.MomentumSettings(name="momentum", lr=1.0, weight_decay=decay, momentum=0.9, nesterov=nesterov)


def sgd(decay: float) -> schema.SgdSettings:
    return schema.SgdSettings(name="sgd", lr=1.0, weight_decay=decay)


def adam(name: str, decay: float, eps: float = 1e-8) -> schema.AdamSettings:
    return schema.AdamSettings(name=name, lr=1.0, weight_decay=decay, beta1=BETAS[0], beta2=BETAS[1], eps=eps)


def steps(optimizer: schema.OptimizerSettings, scale: float = 1.0) -> list[list[np.ndarray]]:
    """The weights after each step, from gradients times `scale`."""
    weights = [Parameter(Tensor(w), name=name) for w, name in zip(WEIGHTS, NAMES, strict=True)]
    built = optimizers.build(weights, optimizer)
    history = []
    for gradients, rate in zip(GRADIENTS, RATES, strict=True):
        built.learning_rate.set_data(Tensor(rate, ms.float32))
        built(tuple(Tensor(np.float32(scale) * gradient) for gradient in gradients))
        history.append([w.asnumpy().copy() for w in weights])
    return history


def worst(found: list[list[np.ndarray]], definition, scale: float = 1.0) -> float:
    """Largest relative distance of any step from what the definition yields for each weight."""
    by_weight = zip(*GRADIENTS, strict=True)
    histories = [
        list(definition(np.asarray(w, float), [np.asarray(np.float32(scale) * g, float) for g in gradients], RATES))
        for w, gradients in zip(WEIGHTS, by_weight, strict=True)
    ]
    return max(reference.distance(*pair) for pair in zip(found, zip(*histories, strict=True), strict=True))


@pytest.mark.parametrize("decay", [0.0, 0.05])
@pytest.mark.parametrize("nesterov", [False, True])
def test_momentum(nesterov: bool, decay: float) -> None:
    expected = partial(reference.momentum, mu=0.9, decay=decay, nesterov=nesterov)
    assert worst(steps(momentum(nesterov, decay)), expected) <= 1e-6


@pytest.mark.parametrize("decay", [0.0, 0.05])
def test_sgd(decay: float) -> None:
    assert worst(steps(sgd(decay)), partial(reference.momentum, mu=0.0, decay=decay)) <= 1e-6


@pytest.mark.parametrize("decay", [0.0, 0.05])
@pytest.mark.parametrize("name", ["adam", "adamw"])
def test_adam(name: str, decay: float) -> None:
    expected = partial(reference.adam, betas=BETAS, eps=1e-8, decay=decay, decoupled=name == "adamw")
    assert worst(steps(adam(name, decay)), expected) <= 2e-5
    assert worst(steps(adam(name, decay)), partial(expected, eps_before_correction=True)) <= 1e-6


@pytest.mark.parametrize("name", ["adam", "adamw"])
def test_eps_stands_before_adams_bias_correction(name: str) -> None:
    """As in MindSpore and TensorFlow; PyTorch adds it after, which shows where gradients are as small as eps."""
    expected = partial(reference.adam, betas=BETAS, eps=1e-4, decay=0.0, decoupled=name == "adamw")
    found = steps(adam(name, 0.0, 1e-4), scale=1e-4)
    assert worst(found, partial(expected, eps_before_correction=True), scale=1e-4) <= 1e-6
    assert worst(found, expected, scale=1e-4) >= 1e-2


def test_adamw_without_decay_is_adam() -> None:
    for ours, theirs in zip(steps(adam("adamw", 0.0)), steps(adam("adam", 0.0)), strict=True):
        for mine, other in zip(ours, theirs, strict=True):
            np.testing.assert_array_equal(mine, other)


@pytest.mark.parametrize("chosen", [momentum(False, 0.05), sgd(0.05), adam("adam", 0.05), adam("adamw", 0.05)])
def test_a_rate_of_zero_leaves_the_weights(chosen: schema.OptimizerSettings) -> None:
    history = steps(chosen)
    for before, after in zip(history[2], history[3], strict=True):
        np.testing.assert_array_equal(before, after)
