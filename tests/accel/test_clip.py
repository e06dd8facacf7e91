"""Clipping: against float64, on the gradient of the whole update, and the same for a window as for the big batch."""

from itertools import islice

import mindspore as ms
import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from mindspore import Tensor, nn

from msaccel.accel.clip import METHOD, ClipSettings
from msaccel.config.bounds import bad_values
from msaccel.kernels import GlobalNorm
from tests import reference

pytestmark = pytest.mark.usefixtures("graph_mode")

SHAPES = ((3, 4), (5,), (2, 3, 1, 2))
MODES = ("norm", "value")
few = hypothesis_settings(max_examples=20, deadline=None, derandomize=True)


class Clipping(nn.Cell):
    """A clip behind the norm that an update gives it."""

    def __init__(self, bound: float, mode: str) -> None:
        super().__init__()
        self.clip, self.global_norm = METHOD.transform(ClipSettings(max_norm=bound, mode=mode), ()), GlobalNorm()

    def construct(self, *gradients: Tensor) -> tuple[Tensor, ...]:
        clipped, flag = self.clip(gradients, self.global_norm(gradients))
        return (flag, *clipped)


CELLS: dict[tuple[float, str], Clipping] = {}


def clip(gradients: list[np.ndarray], bound: float, mode: str) -> tuple[list[np.ndarray], float]:
    cell = CELLS.setdefault((bound, mode), Clipping(bound, mode))
    flag, *clipped = cell(*[Tensor(g, ms.float32) for g in gradients])
    return [g.asnumpy() for g in clipped], float(flag.asnumpy())


def drawn(seed: int, scale: float, zeros: float = 0.0) -> list[np.ndarray]:
    draw = np.random.default_rng(seed)
    return [(scale * draw.standard_normal(s) * (draw.random(s) >= zeros)).astype(np.float32) for s in SHAPES]


def assert_unchanged(gradients: list[np.ndarray], bound: float, mode: str) -> None:
    found, flag = clip(gradients, bound, mode)
    assert flag == 0
    for g, expected in zip(found, gradients, strict=True):
        np.testing.assert_array_equal(g, expected)


@pytest.mark.parametrize("mode", MODES)
@given(
    st.integers(0, 2**32 - 1), st.floats(-6, 6), st.sampled_from([0.0, 0.5, 0.95]), st.sampled_from([1e-6, 1.0, 1e6])
)
@example(0, 2.0, 1.0, 1.0)
@few
def test_clipped_as_in_float64(mode: str, seed: int, exponent: float, zeros: float, bound: float) -> None:
    gradients = drawn(seed, 10.0**exponent, zeros)
    size = reference.norm(gradients) if mode == "norm" else max(np.abs(g).max() for g in gradients)
    if size <= bound:
        assert_unchanged(gradients, bound, mode)
    else:
        found, flag = clip(gradients, bound, mode)
        assert flag == 1
        assert reference.distance(found, reference.clip(gradients, bound, mode)) <= 1e-5
        if mode == "norm":
            assert reference.norm(found) == pytest.approx(bound, rel=1e-5)


@pytest.mark.parametrize("bound", [1e-6, 1.0, 1e6])
def test_no_epsilon_shortens_what_is_clipped(bound: float) -> None:
    unit = drawn(0, 1.0)
    for excess in (1.001, 2.0, 1000.0):
        found, flag = clip([excess * bound / reference.norm(unit) * g for g in unit], bound, "norm")
        assert (reference.norm(found), flag) == (pytest.approx(bound, rel=1e-6), 1)


@pytest.mark.parametrize(("mode", "size"), [("norm", 5.0), ("value", 4.0)])
def test_the_bound_itself_is_not_clipped(mode: str, size: float) -> None:
    gradients = [np.zeros(shape, np.float32) for shape in SHAPES]
    assert_unchanged(gradients, size, mode)
    gradients[0][1, 2], gradients[2][1, 0, 0, 1] = 3, -4
    assert_unchanged(gradients, size, mode)
    gradients[2] *= 1 + 1e-6
    found, flag = clip(gradients, size, mode)
    assert flag == 1
    assert reference.distance(found, reference.clip(gradients, size, mode)) <= 1e-6


@pytest.mark.parametrize("bound", ["1e39", "1e-46", "inf", "nan"])
def test_a_bound_beyond_float32_is_refused(composed, bound: str) -> None:
    (sentence,) = bad_values(composed("accel=clip", f"accel.clip.max_norm={bound}"))
    assert sentence.startswith("accel.clip.max_norm=") and "is out of range" in sentence


@pytest.mark.parametrize("steps", [1, 3])
@pytest.mark.parametrize(("mode", "bounds"), [("norm", (0.05, 50.0)), ("value", (0.02, 50.0))])
def test_the_gradient_of_the_whole_update_is_clipped(job, tiny, patches, mode, bounds, steps) -> None:
    for bound in bounds:
        accel = ["accel=clip"] if steps == 1 else ["accel=[accum,clip]", f"accel.accum.steps={steps}"]
        clip = (f"accel.clip.max_norm={bound}", f"accel.clip.mode={mode}")
        parts = job("train.batch_size=8", "optimizer.momentum=0", *accel, *clip, network=tiny())
        before, (window,) = parts.weights(), next(parts.windows(patches, 8 * steps))
        signals = parts.step(window, 0.5)
        images, labels = (np.concatenate(arrays) for arrays in zip(*window, strict=True))
        gradients = reference.mlp_gradients(before, images, labels)
        norm, largest, applied, clipped, *_ = signals.outcome.asnumpy()[-6:]
        assert norm == largest == pytest.approx(reference.norm(gradients), rel=1e-5), "the norm before clipping"
        assert (applied, clipped) == (1, bound == bounds[0])
        expected = reference.clip(gradients, bound, mode)
        assert reference.distance([m.asnumpy() for m in parts.optimizer.moments], expected) <= 1e-5


# 3 full windows of 4 × 8 an epoch, then one of 8, 8 and 3; the bounds clip some of the updates.
CLIPPED = {"mlp-norm": ("mlp", "norm", 1.4), "lenet-norm": ("lenet", "norm", 0.18), "mlp-value": ("mlp", "value", 0.02)}


@pytest.mark.parametrize(("model", "mode", "bound"), CLIPPED.values(), ids=CLIPPED)
def test_a_clipped_window_is_the_clipped_big_batch(job, digits, model, mode, bound) -> None:
    common = (
        f"model={model}",
        "optimizer.weight_decay=5e-4",
        f"accel.clip.max_norm={bound}",
        f"accel.clip.mode={mode}",
    )
    window = job("accel=[accum,clip]", "train.batch_size=8", *common)
    big = job("accel=clip", "train.batch_size=32", *common)
    before, clipped = big.weights(), []
    for each in (window, big):
        windows = islice(each.windows(digits(model).train, 115), 20)
        clipped.append([each.update(ranks, 0.01).outcome.asnumpy()[-3] for ranks in windows])
    assert clipped[0] == clipped[1]
    assert sum(clipped[0]) > 0 and (mode == "value" or sum(clipped[0]) < 20)
    assert reference.distance(window.weights(), big.weights()) <= 1e-5
    assert reference.distance(before, big.weights()) >= 1e-3
