"""Jobs in bfloat16 follow those in float32; weights, statistics and checkpoints stay in float32."""

from collections.abc import Callable

import numpy as np
import pytest

from msaccel import kernels
from msaccel.kernels.processor import has_bf16
from tests import reference
from tests.conftest import Job
from tests.running import soak

pytestmark = pytest.mark.usefixtures("graph_mode")

EMULATED = ("precision=bf16", "kernels.emulate_bf16=true")
WAYS = [EMULATED] + [("precision=bf16",)] * has_bf16()
IDS = ["emulated", "native"][: len(WAYS)]
DRAW = np.random.default_rng(0)
LABELS = np.arange(32, dtype=np.int32) % 10


def patterns(channels: int, side: int) -> np.ndarray:
    """One image for each label, which a network learns within few updates."""
    return 3 * DRAW.standard_normal((10, channels, side, side)).astype(np.float32)[LABELS]


CHARACTERS = np.cumsum(DRAW.integers(0, 3, (8, 17)), 1).astype(np.int32) % 20
# Overrides, a batch, and how far losses of 20 updates may be from those in float32, relative to the first.
NETWORKS = {
    "lenet": (("model=lenet", "optimizer.lr=0.05"), (patterns(1, 32), LABELS), 0.01),
    "resnet": (
        ("model=resnet50", "model.depth=8", "model.image_size=16", "data=synthetic", "optimizer.lr=0.002"),
        (patterns(3, 16), LABELS), 0.05,
    ),
    "resnet with a stem that pools": (
        ("model=resnet50", "model.depth=8", "model.stem=imagenet", "model.image_size=32", "data=synthetic",
         "optimizer.lr=0.002"),
        (patterns(3, 32), LABELS), 0.05,
    ),
    "gpt": (
        ("model=gpt", "model.layers=2", "model.heads=2", "model.width=32", "model.block=16", "model.classes=20",
         "data=shakespeare", "optimizer=adamw", "optimizer.lr=0.003", "train.batch_size=8"),
        (CHARACTERS[:, :-1].copy(), CHARACTERS[:, 1:].copy()), 0.01,
    ),
}  # fmt: skip


def losses(parts: Job, batch: tuple[np.ndarray, np.ndarray], updates: int = 20) -> np.ndarray:
    signals = [parts.update([[batch]], float(parts.config.optimizer.lr)) for _ in range(updates)]
    return np.array([float(np.mean([each.asnumpy()[0] for each in signal.measured])) for signal in signals])


def held(parts: Job) -> dict[str, tuple[tuple[int, ...], np.dtype]]:
    """Shapes and types of all that a checkpoint holds."""
    return {name: (value.shape, value.dtype) for name, value in parts.state().items()}


@pytest.mark.slow
@pytest.mark.parametrize("name", [*(name for name in NETWORKS if name != "resnet"), *soak("resnet")])
def test_losses_follow_those_in_float32_and_checkpoints_hold_the_same(job: Callable[..., Job], name: str) -> None:
    overrides, batch, tolerance = NETWORKS[name]
    single = job(*overrides)
    expected = losses(single, batch)
    assert expected[-1] < 0.97 * expected[0], "it learns"
    found = []
    for way in WAYS:
        parts = job(*overrides, *way)
        found.append(losses(parts, batch))
        assert held(parts) == held(single)
    for curve in found:
        assert np.abs(curve - expected).max() <= tolerance * expected[0]
        assert not np.array_equal(curve, expected), "it is computed otherwise"
    for curve in found[1:]:  # sums in another order
        assert np.abs(curve - found[0]).max() <= tolerance * expected[0]


@pytest.mark.parametrize("way", WAYS, ids=IDS)
def test_an_update_smaller_than_a_bfloat16_is_not_lost(job: Callable[..., Job], way: tuple[str, ...]) -> None:
    overrides, batch, _ = NETWORKS["lenet"]
    parts = job(*overrides, *way, "optimizer=sgd")
    before = parts.weights()
    for _ in range(3):
        parts.update([[batch]], 1e-3)
    after = parts.weights()
    assert all(weight.dtype == np.float32 for weight in after)
    old, new = (np.concatenate([weight.ravel() for weight in weights]) for weights in (before, after))
    kept = (new != old) & (np.abs(new - old) < 2**-9 * np.abs(old))  # less than half a unit in the last place
    assert kept.mean() > 0.3


def test_gradients_are_near_those_of_float32(job: Callable[..., Job]) -> None:
    overrides, batch, _ = NETWORKS["lenet"]
    moved = []
    for precision in ((), *WAYS):
        parts = job(*overrides, *precision, "optimizer=sgd")
        before = parts.weights()
        parts.update([[batch]], 1.0)
        moved.append([new - old for old, new in zip(before, parts.weights(), strict=True)])
    assert 0.001 < reference.distance(moved[1], moved[0]) <= 0.2, "rounding, amplified where another tap is the maximum"
    for native in moved[2:]:
        assert reference.distance(native, moved[1]) <= 1e-3, "the same products, summed in another order"


def test_the_next_test_multiplies_in_float32() -> None:
    """It comes after jobs in bfloat16, whose backend is that of the process."""
    assert kernels.current_backend().products == kernels.Products.FLOAT32
