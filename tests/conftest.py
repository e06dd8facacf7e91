"""MindSpore in graph mode on the CPU, the first samples of MNIST, and the parts of one training."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING

import numpy as np
import pytest

from msaccel import settings
from msaccel.data import Data, load
from msaccel.errors import DataError

if TYPE_CHECKING:
    from mindspore import nn

    from msaccel.accel.accum import Settings as Accum
    from msaccel.update import Signals, Update, Window

os.environ.setdefault("GLOG_v", "3")

DECAY = 5e-4
OPTIMIZERS = {
    "momentum": settings.Momentum("momentum", lr=1.0, weight_decay=DECAY, momentum=0.9, nesterov=False),
    "plain": settings.Momentum("momentum", lr=1.0, weight_decay=0.0, momentum=0.0, nesterov=False),
    "sgd": settings.Sgd("sgd", lr=1.0, weight_decay=DECAY),
    "adam": settings.Adam("adam", lr=1.0, weight_decay=DECAY, beta1=0.9, beta2=0.999, eps=1e-8),
    "adamw": settings.Adam("adamw", lr=1.0, weight_decay=DECAY, beta1=0.9, beta2=0.999, eps=1e-8),
}


@dataclass
class Parts:
    """A network, its optimizer and its update."""

    network: nn.Cell
    optimizer: nn.Optimizer
    update: Update

    def step(self, window: Window, rate: float) -> Signals:
        """One update of one rank."""
        return self.update([window], rate)

    def weights(self) -> list[np.ndarray]:
        return [parameter.asnumpy().copy() for parameter in self.network.trainable_params()]

    def state(self) -> dict[str, np.ndarray]:
        """All that an update may change, but for the rate, which every update is given."""
        parameters = [*self.network.get_parameters(), *self.optimizer.get_parameters()]
        return {p.name: p.asnumpy().copy() for p in parameters if p is not self.optimizer.learning_rate}


@pytest.fixture(scope="session")
def graph_mode() -> None:
    """How every job runs; for tests that build networks."""
    import mindspore as ms

    ms.set_context(mode=ms.GRAPH_MODE)
    ms.set_device("CPU")


@pytest.fixture(scope="session")
def build(graph_mode: None) -> Callable[..., Parts]:
    """Builds the parts from a model's name and an optimizer's, as seeded."""
    import mindspore as ms

    from msaccel import models, optimizers
    from msaccel.guard import NO_LIMIT, Policy
    from msaccel.update import Update

    def built(
        model: str,
        optimizer: str,
        batch_size: int,
        accum: Accum | None = None,
        on_nonfinite: str = "stop",
        *,
        seed: int = 0,
    ) -> Parts:
        ms.set_seed(seed)
        network = models.build(settings.Model(name=model, init="default", classes=10))
        chosen = optimizers.build(network.trainable_params(), OPTIMIZERS[optimizer])
        undivided = accum is not None and accum.reduction == "sum"
        policy = Policy(1 if on_nonfinite == "stop" else NO_LIMIT)
        update = Update(network, chosen, batch_size, single=accum is None, undivided=undivided, policy=policy)
        return Parts(network, chosen, update)

    return built


@pytest.fixture(scope="session")
def digits() -> Callable[[str], Data]:
    """The first 1,000 training and 500 test images of MNIST, as the named model reads them."""

    @cache
    def loaded(model: str) -> Data:
        folder = os.environ.get("MSACCEL_CACHE", "~/.cache/msaccel")
        limits = {"limit_train": 1000, "limit_eval": 500, "val_fraction": 0.0}
        transform = {"lenet": "lenet32", "mlp": "mlp28"}[model]
        try:
            return load(settings.IdxData("mnist", transform, root=None, cache=folder, **limits), seed=0)
        except DataError as error:
            pytest.skip(str(error))

    return loaded


def assert_same_bits(found: dict[str, np.ndarray], expected: dict[str, np.ndarray]) -> None:
    assert found.keys() == expected.keys()
    for name, values in found.items():
        np.testing.assert_array_equal(values, expected[name], err_msg=name)
