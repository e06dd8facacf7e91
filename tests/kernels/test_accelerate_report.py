"""`accelerate` beside its operators: what it reports, what it refuses in which words, how many threads it takes."""

import os
import sys
from collections.abc import Callable
from pathlib import Path

import mindspore as ms
import pytest
from mindcv.models.layers.activation import Swish
from mindcv.models.layers.squeeze_excite import SqueezeExcite
from mindspore import nn, ops

from msaccel.kernels import Replacements, UnavailableError, accelerate, acceleration, build, refusals, restore
from tests.kernels.test_acceleration import Small

pytestmark = pytest.mark.usefixtures("graph_mode")
AUTOMATIC = 'network: auto_mixed_precision at "auto" casts what MindSpore\'s own operators are given'
PADDED_POOL, OTHER_POOL = "MaxPool3DWithArgmax: ", "not in an nn.MaxPool2d, or with indices"


def test_report_names_what_was_replaced_and_what_was_left() -> None:
    network = Small()
    report = accelerate(network)
    assert report.replaced == {
        "features.0.conv2d": "Conv2D",
        "features.1.bn_train": "BatchNorm",
        "features.1.bn_infer": "BatchNorm",
        "features.2": "GELU",
        "features.3.max_pool": "MaxPool",
    }
    assert report.left == {"classify": "Dense: MindSpore's matrix product stays"}
    assert str(report) == (
        "Replaced: 2 BatchNorm, 1 Conv2D, 1 GELU, 1 MaxPool.\nLeft: 1 Dense: MindSpore's matrix product stays."
    )
    again = accelerate(network)
    assert again.replaced == {} and again.left == report.left
    assert str(Replacements()) == "Replaced: nothing."


@pytest.mark.parametrize(
    ("make", "left"),
    [
        (lambda: nn.AvgPool2d(2), "AvgPool: no operator here"),
        (lambda: nn.AvgPool2d(2, pad_mode="pad", padding=1), "AvgPool3D: no operator here"),
        (lambda: nn.MaxPool2d(2, pad_mode="pad", return_indices=True), PADDED_POOL + OTHER_POOL),
        (lambda: nn.MaxPool3d(2, 2, pad_mode="pad", dilation=(1, 1, 1)), PADDED_POOL + OTHER_POOL),
        (lambda: nn.MaxPool2d(2, pad_mode="pad", ceil_mode=True), PADDED_POOL + "ceil_mode"),
        (lambda: nn.MaxPool2d(2, pad_mode="pad", dilation=2), PADDED_POOL + "dilation"),
        (lambda: nn.MaxPool2d(2, 2, pad_mode="pad", padding=2), PADDED_POOL + "padding of more than half a window"),
        (
            lambda: nn.MaxPool2d(2, pad_mode="pad", padding=(0, 1)),
            PADDED_POOL + "a stride or padding that differs along the height and the width",
        ),
        (lambda: nn.MaxPool2d((2, 3)), "MaxPool: a window other than a square of at most 15 × 15"),
        (lambda: nn.LayerNorm((4,), 1, 2), "LayerNorm: begin_params_axis differs from begin_norm_axis"),
        (lambda: ops.BatchMatMul(), "BatchMatMul: MindSpore's matrix product stays"),
        (lambda: nn.Embedding(4, 2), "Embedding: the operator here adds positions"),
        (lambda: nn.CrossEntropyLoss(), "CrossEntropyLoss: the operator here has no weights of classes"),
        (lambda: type("Own", (nn.GELU,), {})(), "Own: a class derived from GELU"),
        (lambda: type("Own", (nn.SiLU,), {})(), "Own: a class derived from SiLU"),
        (lambda: type("Own", (Swish,), {})(), "Own: a class derived from Swish"),
        (lambda: nn.MaxPool2d(2, 2).to_float(ms.float16), "MaxPool: in float16, by to_float"),
        (lambda: nn.GELU().to_float(ms.float16), "GELU: in float16, by to_float"),
        (lambda: nn.SiLU().to_float(ms.bfloat16), "SiLU: in bfloat16, by to_float"),
        (lambda: nn.Conv2d(3, 4, 3).to_float(ms.bfloat16), "Conv2D: in bfloat16, by to_float"),
        (lambda: nn.Conv2d(3, 4, 3).to_float(ms.float32), "Conv2D: in float32, by to_float"),
        (lambda: ms.amp.auto_mixed_precision(nn.Conv2d(3, 4, 3), "auto"), AUTOMATIC),
    ],
)
def test_report_names_every_layer_that_costs_time_and_was_left(make: Callable[[], nn.Cell], left: str) -> None:
    network = nn.Cell()
    network.layer = make()
    report = accelerate(network)
    assert not report.replaced and list(report.left.values()) == [left]
    assert all(path.startswith("layer") for path in report.left)


def test_squeeze_and_excitation_with_another_pool_is_left() -> None:
    layer = SqueezeExcite(8, rd_channels=3)
    layer.pool = nn.AdaptiveMaxPool2d(1)
    report = accelerate(layer)
    assert report.left == {"": "SqueezeExcite: its pool has been replaced"} and type(layer) is SqueezeExcite


@pytest.mark.parametrize("module", ["mindcv", "mindcv.models.layers.activation"])
def test_without_mindcv_or_with_another_version_its_layers_are_left(
    module: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    network = nn.SequentialCell(Swish(), nn.SiLU())
    monkeypatch.delitem(sys.modules, "msaccel.kernels.swapped_mindcv", raising=False)
    if module == "mindcv":
        monkeypatch.delitem(sys.modules, module)
    else:
        monkeypatch.setitem(sys.modules, module, None)
    assert accelerate(network).replaced == {"1": "SiLU"}
    assert "msaccel.kernels.swapped_mindcv" not in sys.modules


def test_on_another_device_it_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ms, "get_context", {"device_target": "GPU"}.get)
    with pytest.raises(UnavailableError, match="accelerate is for the CPU, and the device is GPU; leave it out"):
        accelerate(nn.Conv2d(1, 1, 1))


@pytest.mark.parametrize("function", [accelerate, restore])
def test_what_is_no_network_is_refused(function: Callable[[object], object]) -> None:
    with pytest.raises(TypeError) as refused:
        function(5)
    assert str(refused.value) == (
        f"{function.__name__} takes a network (nn.Cell), and was given a value of type int; pass one."
    )


@pytest.mark.parametrize("make", [lambda: nn.Conv2d(1, 1, 1), lambda: 5], ids=["network", "number"])
@pytest.mark.parametrize(("system", "name"), [("Windows", "Windows"), ("Darwin", "macOS")])
def test_a_system_that_is_not_served_is_named_first(
    make: Callable[[], nn.Cell], system: str, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(build.platform, "system", lambda: system)
    monkeypatch.setattr(build, "cached", lambda: None)
    monkeypatch.setenv("CXX", "/no/compiler")
    said = f"the native operators need Linux, and this is {name}; run this under Linux."
    with pytest.raises(UnavailableError, match=f"^{said}$"):
        accelerate(make())
    assert list(refusals("onednn", on_cpu=True)) == [f"kernels.use=onednn: {said} Or write kernels.use=auto."]


def test_without_a_compiler_that_is_named_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MSACCEL_CACHE", str(tmp_path))
    monkeypatch.setenv("CXX", "/no/compiler")
    with pytest.raises(UnavailableError, match=r"^no C\+\+ compiler was found"):
        accelerate(5)  # type: ignore[arg-type]


@pytest.mark.parametrize("said", [None, "", " "])
@pytest.mark.parametrize(("there", "threads"), [(4.0, "4"), (1.5, "1"), (0.5, "1")])
def test_threads_are_those_of_the_processors_if_nothing_is_set(
    said: str | None, there: float, threads: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(acceleration, "cores", lambda: there)
    monkeypatch.setenv("OMP_NUM_THREADS", said or "")
    if said is None:
        monkeypatch.delenv("OMP_NUM_THREADS")
    accelerate(nn.ReLU())
    assert os.environ["OMP_NUM_THREADS"] == threads


def test_threads_that_are_set_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    accelerate(nn.ReLU())
    assert os.environ["OMP_NUM_THREADS"] == "3"


def test_within_a_training_step_only_the_automatic_network_is_left() -> None:
    """MindSpore marks the cells around it, too."""
    network = ms.amp.auto_mixed_precision(nn.SequentialCell(nn.Conv2d(3, 4, 3), nn.Flatten()), "auto")
    step = nn.TrainOneStepCell(
        nn.WithLossCell(network, nn.MSELoss()), nn.Momentum(network.trainable_params(), 0.1, 0.9)
    )
    report = accelerate(step)
    assert report.replaced == {"optimizer": "Momentum"}
    assert report.left == {"network._backbone": AUTOMATIC}
