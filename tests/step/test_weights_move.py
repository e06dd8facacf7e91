"""A step reaches the weights of every kind of network: MindSpore may hand an operator copies of them without a word."""

import numpy as np
import pytest

from msaccel.data.dataset import InMemoryDataset
from msaccel.data.synthetic_images import generate
from tests.running import soak

RESNET = ("model=resnet50", "model.depth=8", "model.image_size=16")
NETWORKS = {
    "lenet": ((1, 32, 32), ("model=lenet",)),
    "mlp": ((1, 28, 28), ("model=mlp",)),
    "batch norm": ((3, 16, 16), RESNET),
    "group norm": ((3, 16, 16), (*RESNET, "model.norm=group")),
}
RATE = 0.25
OFTEN = [("batch norm", "none"), ("batch norm", "accum")]
CASES = [(network, accel) for network in NETWORKS for accel in ("none", "accum", "clip")]


def prepared(job, network: str, *overrides: str):
    """A job's parts without weight decay, and its windows of 64 synthetic samples."""
    shape, chosen = NETWORKS[network]
    parts = job(*chosen, "data=synthetic", "train.batch_size=8", "optimizer.weight_decay=0", *overrides)
    (images, labels), _ = generate((64, 8), shape, 10, seed=0)
    return parts, parts.windows(InMemoryDataset(images, labels, np.linspace(-2, 2, 256, dtype=np.float32)), 64)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("network", "accel"),
    [*OFTEN, *(pytest.param(*case, marks=pytest.mark.soak) for case in CASES if case not in OFTEN)],
)
def test_weights_move_by_the_velocity(job, network: str, accel: str) -> None:
    parts, windows = prepared(job, network, f"accel={accel}")
    optimizer = parts.update.optimizer
    for _ in range(2):
        before = [weight.asnumpy().copy() for weight in optimizer.parameters]
        parts.update(next(windows), RATE)
        for weight, old, velocity in zip(optimizer.parameters, before, optimizer.moments, strict=True):
            expected = old - np.float32(RATE) * velocity.asnumpy()
            assert velocity.asnumpy().any() and (weight.asnumpy() != old).any(), weight.name
            np.testing.assert_allclose(weight.asnumpy(), expected, atol=1e-6, err_msg=weight.name)


@pytest.mark.slow
@pytest.mark.parametrize("network", ["batch norm", *soak("lenet")])
@pytest.mark.parametrize("name", ["lars", "schedulefree"])
def test_weights_move_with_the_state_of_optimizers_behind_a_branch(job, name: str, network: str) -> None:
    parts, windows = prepared(job, network, f"optimizer={name}")
    optimizer = parts.update.optimizer
    for _ in range(2):
        before = [weight.asnumpy().copy() for weight in optimizer.parameters]
        parts.update(next(windows), 0.01)
        for i, (weight, old) in enumerate(zip(optimizer.parameters, before, strict=True)):
            if name == "lars":
                expected = old - optimizer.velocities[i].asnumpy()
            else:
                x, z = optimizer.averages[i].asnumpy(), optimizer.stepped[i].asnumpy()
                expected = x + np.float32(0.1) * (z - x)
            assert (weight.asnumpy() != old).any(), weight.name
            np.testing.assert_allclose(weight.asnumpy(), expected, atol=1e-6, err_msg=weight.name)
