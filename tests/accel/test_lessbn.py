"""Less batch normalisation against NumPy and against `mindspore.boost`, and jobs with it."""

import numpy as np
import pytest
from mindspore import Tensor
from mindspore.boost.less_batch_normalization import CommonHeadLastFN

from msaccel.accel.lessbn.network import CosineDense, remove_inner_norms
from msaccel.training.builder import build_network
from tests import reference
from tests.models.test_resnet import CASES, Weighted, images, made, must_be_numpys, plain, values  # noqa: F401
from tests.running import Store, soak

pytestmark = pytest.mark.usefixtures("graph_mode")

RESNET20 = ("model=resnet50", "model.depth=20", "model.image_size=16", "data=synthetic", "train.batch_size=4")
RESNET8 = (*RESNET20, "model.depth=8")  # has the same kinds of blocks, and compiles sooner


def parameters(composed, *overrides: str) -> dict[str, tuple[int, ...]]:
    network = build_network(composed(*RESNET20, *overrides))
    return {parameter.name: parameter.shape for parameter in network.get_parameters()}


@pytest.mark.slow
@pytest.mark.usefixtures("plain")
@pytest.mark.parametrize("case", CASES)
def test_a_block_without_its_inner_norms(case: str) -> None:
    block, (*_, convolutions) = made(case), CASES[case]
    remove_inner_norms(block)
    assert {name for name in values(block) if "gamma" in name} == {f"norm{len(convolutions)}.gamma"}
    must_be_numpys(block, case)


def test_the_last_layer_is_that_of_boost() -> None:
    draw = np.random.default_rng(0).standard_normal
    weight, x, dy = (draw(shape).astype(np.float32) for shape in ((5, 8), (7, 8), (7, 5)))
    ours, boosts = CosineDense(Tensor(weight)), CommonHeadLastFN(8, 5, Tensor(weight), has_bias=False)
    found = []
    for cell, scale in ((ours, ours.gamma), (boosts, boosts.multiplier)):
        scale.set_data(Tensor(np.array([3.0], np.float32)))
        y, dx, dweights = Weighted(cell)(Tensor(x), Tensor(dy))
        found.append([tensor.asnumpy() for tensor in (y, dx, *dweights)])
    for mine, theirs in zip(*found, strict=True):
        assert reference.distance([mine], [theirs]) <= 1e-5


def test_features_of_zero_have_logits_and_gradients() -> None:
    """Boost's gradient divides by the norm even where that is below the smallest; ours does as the values do."""
    layer = CosineDense(Tensor(np.eye(2, 8, dtype=np.float32)))
    y, dx, dweights = Weighted(layer)(Tensor(np.zeros((3, 8), np.float32)), Tensor(np.ones((3, 2), np.float32)))
    assert not y.asnumpy().any() and not dweights[1].asnumpy().any()
    np.testing.assert_allclose(dx.asnumpy()[:, :2], 100, rtol=1e-6)  # 1 / √1e-4


def test_each_part_can_be_left_out(composed) -> None:
    full = parameters(composed)
    norms = parameters(composed, "accel=lessbn", "accel.lessbn.last_layer=false")
    last = parameters(composed, "accel=lessbn", "accel.lessbn.norms=false")
    both = parameters(composed, "accel=lessbn")
    gone = {name.rpartition(".")[0] for name in full.keys() - norms.keys()}
    blocks = {f"stages.{stage}.{block}.norm1" for stage in range(3) for block in range(3)}
    assert gone == blocks | {"stages.1.0.shortcut.1", "stages.2.0.shortcut.1"}
    assert norms.items() <= full.items()
    assert full.keys() - last.keys() == {"head.bias"} and last.keys() - full.keys() == {"head.gamma"}
    assert both.keys() == norms.keys() & last.keys() | {"head.gamma"}
    assert both["head.weight"] == full["head.weight"]


@pytest.mark.slow
def test_native_operators_compute_the_same(job) -> None:
    x, found = Tensor(images(4, side=16)), []
    for kernels in ("unfold", "auto"):
        network = job(*RESNET8, "accel=lessbn", f"kernels.use={kernels}").network.set_train()
        found.append(network(x).asnumpy())
    assert reference.distance([found[0]], [found[1]]) <= 1e-4 and np.ptp(found[0]) > 0.1


def test_the_scale_of_the_logits_has_no_weight_decay(composed) -> None:
    assert {"head.gamma", "stem.norm.gamma"} <= build_network(composed(*RESNET20, "accel=lessbn")).undecayed()


@pytest.mark.slow
@pytest.mark.parametrize(  # `make test` has no other job in bfloat16
    "more",
    [
        ("accel=[lessbn,freeze]",),
        ("accel=lessbn", "precision=bf16", "kernels.emulate_bf16=true"),
        *soak(("accel=lessbn", "precision=fp16", "loss_scale.mode=dynamic")),
    ],
    ids=" ".join,
)
def test_a_job_trains_is_evaluated_and_loaded(store: Store, more: tuple[str, ...]) -> None:
    ended = store.run(*RESNET8, "data.train_size=64", "data.test_size=40", "train.epochs=2", *more)
    assert ended.returncode == 0, ended.stderr
    (run,) = store.runs()
    assert run.data.tags["accel"] == ("lessbn+freeze" if "freeze" in more[0] else "lessbn")
