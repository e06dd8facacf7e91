"""Gradient centralization against float64, over windows and ranks, and which weights it leaves alone."""

from functools import cache

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from mindspore import Tensor

from msaccel.accel.centralize.graph import Centralize
from tests import reference

pytestmark = pytest.mark.usefixtures("graph_mode")

COMMON = ("data=synthetic", "optimizer=momentum", "tracking.uri=sqlite:///none", "accel.centralize.layers=all")
RATE = 0.1
SHAPES = [(3,), (4, 5), (1, 6), (3, 2, 1, 1), (4, 3, 3, 2)]


def centred(gradient: np.ndarray) -> np.ndarray:
    rows = gradient.reshape(len(gradient), -1)
    return (rows - rows.mean(1)[:, None]).reshape(gradient.shape)


cell = cache(Centralize)  # one graph for all examples


@pytest.mark.slow
@settings(max_examples=8)
@given(st.tuples(*(arrays.arrays(np.float32, shape, elements=st.floats(-100, 100, width=32)) for shape in SHAPES)))
def test_every_unit_has_a_mean_of_zero(gradients: tuple[np.ndarray, ...]) -> None:
    for axes in (2, 3):
        found, changed = cell(axes)(tuple(map(Tensor, gradients)), Tensor(1.0))
        assert float(changed.asnumpy()) == 1
        for mine, gradient in zip(found, gradients, strict=True):
            expected = centred(gradient.astype(float)) if gradient.ndim >= axes else gradient
            np.testing.assert_allclose(mine.asnumpy(), expected, rtol=0, atol=5e-5)


@pytest.mark.slow
@pytest.mark.parametrize(
    "overrides",
    [
        ("accel=centralize", "train.batch_size=32"),
        ("accel=[centralize,accum]", "accel.accum.steps=2", "device=cpu4", "device.ranks_per_server=2",
         "train.batch_size=8"),
    ],
    ids=["one rank", "windows of ranks"],
)  # fmt: skip
def test_twenty_updates_are_those_of_float64(job, tiny, patches, overrides: tuple[str, ...]) -> None:
    parts = job(*COMMON, "optimizer.weight_decay=0.01", *overrides, network=tiny())
    windows, weights = parts.windows(patches, 96), [w.astype(float) for w in parts.weights()]
    start = [w.copy() for w in weights]
    velocity = [np.zeros_like(w) for w in weights]
    for _ in range(20):
        window = next(windows)
        parts.update(window, RATE)
        samples = [np.concatenate(of) for of in zip(*(b for rank in window for b in rank), strict=True)]
        gradients = [g if g.ndim < 2 else centred(g) for g in reference.mlp_gradients(weights, *samples)]
        decayed = [g + 0.01 * w for g, w in zip(gradients, weights, strict=True)]
        velocity = [0.9 * v + g for v, g in zip(velocity, decayed, strict=True)]
        weights = [w - RATE * v for w, v in zip(weights, velocity, strict=True)]
    assert reference.distance(parts.weights(), weights) < 1e-5
    assert reference.distance(weights, start) > 0.1, "it has trained"
