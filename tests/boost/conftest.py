"""Each test uses `mindspore.boost` as if it were the first in its process to do so."""

from collections.abc import Callable
from copy import deepcopy
from pathlib import Path

import mindspore as ms
import numpy as np
import pytest
from mindspore import Tensor
from mindspore.boost import AutoBoost, boost

from tests.boost.training import Dense


@pytest.fixture(autouse=True)
def first_use(graph_mode: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """`AutoBoost` keeps its first configuration for the rest of the process, and may change the levels themselves."""
    monkeypatch.setattr(AutoBoost, "_instance", None)
    monkeypatch.setattr(boost, "_boost_config_level", deepcopy(boost._boost_config_level))
    ms.set_seed(0)


@pytest.fixture
def forget(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """Drops the one instance of `AutoBoost`, as nothing in MindSpore does."""
    return lambda: monkeypatch.setattr(AutoBoost, "_instance", None)


@pytest.fixture
def snapshots(tmp_path: Path) -> dict[str, object]:
    """Settings of `dim_reduce`: a subspace of two dimensions from four checkpoints of `Dense`."""
    network = Dense()
    for number in range(4):
        for parameter in network.trainable_params():
            noise = np.random.default_rng(number).normal(0, 0.1, parameter.shape)
            parameter.set_data(Tensor(parameter.asnumpy() + noise, ms.float32))
        ms.save_checkpoint(network, str(tmp_path / f"{number}.ckpt"))
    return {"weight_load_dir": str(tmp_path), "n_components": 2}
