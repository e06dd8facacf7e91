"""The tutorials' networks: what they compute, their sizes, names and initialisation."""

import mindspore as ms
import numpy as np
import pytest
from mindspore import Tensor, nn

from msaccel import models
from msaccel.models.initialisers import initialiser
from msaccel.schema import NORMAL_INIT, ModelSettings
from tests import reference

pytestmark = pytest.mark.usefixtures("graph_mode")

SHAPES = {
    "lenet": {
        "conv1.weight": (6, 1, 5, 5),
        "conv2.weight": (16, 6, 5, 5),
        "fc1.weight": (120, 400),
        "fc1.bias": (120,),
        "fc2.weight": (84, 120),
        "fc2.bias": (84,),
        "fc3.weight": (10, 84),
        "fc3.bias": (10,),
    },
    "mlp": {
        "dense_relu_sequential.0.weight": (512, 784),
        "dense_relu_sequential.0.bias": (512,),
        "dense_relu_sequential.2.weight": (512, 512),
        "dense_relu_sequential.2.bias": (512,),
        "dense_relu_sequential.4.weight": (10, 512),
        "dense_relu_sequential.4.bias": (10,),
    },
}


def build(name: str, init: str = "default", classes: int = 10, seed: int = 0) -> nn.Cell:
    ms.set_seed(seed)
    return models.build(ModelSettings(name=name, init=init, classes=classes))


def weights(network: nn.Cell) -> dict[str, np.ndarray]:
    return {parameter.name: parameter.asnumpy() for parameter in network.get_parameters()}


@pytest.mark.parametrize(("name", "count"), [("lenet", 61_684), ("mlp", 669_706)])
def test_parameters(name: str, count: int) -> None:
    network = build(name)
    assert {parameter.name: parameter.shape for parameter in network.get_parameters()} == SHAPES[name]
    assert sum(parameter.size for parameter in network.trainable_params()) == count


@pytest.mark.parametrize(("name", "side"), [("lenet", 32), ("mlp", 28)])
def test_logits(name: str, side: int) -> None:
    network = build(name, classes=7)
    images = np.random.default_rng(0).standard_normal((3, 1, side, side)).astype(np.float32)
    expected = getattr(reference, name)(list(weights(network).values()), images)
    assert expected.shape == (3, 7)
    assert reference.distance([network(Tensor(images)).asnumpy()], [expected]) <= 1e-6


@pytest.mark.parametrize(("name", "dense"), [("lenet", 0.02), ("mlp", 0.01)])
def test_normal_initialisation_with_zero_bias(name: str, dense: float) -> None:
    for key, values in weights(build(name, "normal(0.01)")).items():
        if key.endswith("bias"):
            assert not values.any()
        else:
            sigma = 0.01 if key.startswith("conv") else dense
            assert values.std() == pytest.approx(sigma, rel=4 / np.sqrt(2 * values.size))
            assert abs(values.mean()) <= 4 * sigma / np.sqrt(values.size)


def uniform(values: np.ndarray, fan_in: int) -> bool:
    """Whether the values look drawn from ±1/sqrt(fan_in)."""
    bound = 1 / np.sqrt(fan_in)
    spread = values.std() / (bound / np.sqrt(3))
    return bool(np.abs(values).max() <= bound and abs(spread - 1) <= 3 / np.sqrt(values.size))


@pytest.mark.parametrize("name", ["lenet", "mlp"])
def test_default_initialisation(name: str) -> None:
    found = weights(build(name))
    for key, values in found.items():
        fan_in = found[key.replace("bias", "weight")][0].size
        if name == "lenet" and key.startswith("fc") and key.endswith("weight"):
            assert values.std() == pytest.approx(0.02, rel=4 / np.sqrt(2 * values.size))
        else:
            assert uniform(values, fan_in), key


def test_default_initialisation_is_that_of_mindspore() -> None:
    found = weights(build("mlp"))
    ms.set_seed(0)
    layers = [nn.Dense(784, 512), nn.Dense(512, 512), nn.Dense(512, 10)]
    expected = [parameter.asnumpy() for layer in layers for parameter in layer.get_parameters()]
    for mine, theirs in zip(found.values(), expected, strict=True):
        np.testing.assert_array_equal(mine, theirs)


@pytest.mark.parametrize("init", ["default", "normal(0.01)"])
@pytest.mark.parametrize("name", ["lenet", "mlp"])
def test_the_seed_decides_the_weights(name: str, init: str) -> None:
    first, again, other = (weights(build(name, init, seed=seed)) for seed in (3, 3, 4))
    for key, values in first.items():
        np.testing.assert_array_equal(values, again[key])
        assert not values.any() or not np.array_equal(values, other[key])


@pytest.mark.parametrize(("init", "sigma"), [("normal(0.01)", 0.01), ("normal(.5)", 0.5), ("normal(2e-3)", 0.002)])
def test_initialisers_are_read(init: str, sigma: float) -> None:
    import re

    assert re.fullmatch(NORMAL_INIT, init)
    assert initialiser(init).sigma == sigma
    assert initialiser("default") is None
