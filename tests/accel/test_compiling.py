"""`compile` builds all graphs of every method and optimizer, before updates are timed, and changes no value."""

from collections.abc import Callable
from itertools import islice

import numpy as np
import pytest
from mindspore import nn
from mindspore.common.api import _CellGraphExecutor

from msaccel import accel
from msaccel.files import CONF
from tests.conftest import assert_same_bits
from tests.running import soak

JOB = ("data=synthetic", "tracking.uri=sqlite:///none", "device=cpu2x2")
KEYS = {"freeze": ("accel.freeze.start=0", "accel.freeze.steps=1"), "localsgd": ("accel.localsgd.every=2",)}
UPDATES = 4


@pytest.fixture
def built(monkeypatch) -> list[str]:
    """The names of the cells whose graphs are built, as they are."""
    names, compiling = [], _CellGraphExecutor.compile

    def watched(executor: _CellGraphExecutor, cell: object, *inputs: object, **options: object) -> tuple[str, bool]:
        graph, new = compiling(executor, cell, *inputs, **options)
        if new:
            names.append(type(cell).__name__)
        return graph, new

    monkeypatch.setattr(_CellGraphExecutor, "compile", watched)
    return names


METHODS = [(f"accel={method}", *KEYS.get(method, ())) for method in accel.methods()]
OFTEN = ("adam", "shampoo")  # one whose step is an operator, and one whose step is a graph
OTHERS = [path.stem for path in sorted((CONF / "optimizer").glob("*.yaml")) if path.stem not in OFTEN]
OPTIMIZERS = [*((f"optimizer={name}",) for name in OFTEN), *soak(*((f"optimizer={name}",) for name in OTHERS))]


@pytest.mark.parametrize("keys", [*METHODS, *OPTIMIZERS], ids=lambda keys: keys[0])
def test_nothing_is_left_to_compile(job: Callable, patches, built: list[str], keys: tuple[str, ...]) -> None:
    layers = (nn.Dense(12, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Dense(8, 8), nn.ReLU(), nn.Dense(8, 4))
    network = nn.SequentialCell(nn.Flatten(), *layers)
    parts = job(*JOB, *keys, "train.batch_size=4", network=network, updates=UPDATES)
    built.clear()
    update = parts.update.at(0, UPDATES)
    before = parts.state()
    update.compile(*patches.batch(np.arange(4)))
    assert built
    assert_same_bits(parts.state(), before)
    built.clear()
    for done, windows in enumerate(islice(parts.windows(patches, 64), UPDATES)):
        assert parts.update.at(done, UPDATES) is update
        update(windows, 0.05)
    assert built == []
