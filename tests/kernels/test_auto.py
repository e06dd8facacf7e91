"""`import msaccel.kernels.auto` before a program that knows nothing of it: native operators compute the same values."""

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.running import soak

PROGRAM = """
import json, sys
import mindspore as ms
import numpy as np
from mindspore import Tensor, nn, ops

class Network(nn.Cell):
    def __init__(self):
        super().__init__()
        self.features = nn.SequentialCell(nn.Conv2d(3, 16, 3), nn.BatchNorm2d(16), nn.ReLU(), nn.MaxPool2d(2, 2))
        self.classify = nn.Dense(16, 4)

    def construct(self, x):
        return self.classify(self.features(x).mean((2, 3)))

way = sys.argv[1]
ms.set_context(mode=ms.GRAPH_MODE if "graph" in way else ms.PYNATIVE_MODE)
ms.set_seed(1)
images = np.random.default_rng(2).standard_normal((6, 3, 16, 16)).astype(np.float32)
labels = np.arange(6, dtype=np.int32) % 4
network, loss = Network(), nn.CrossEntropyLoss()
if "O" in way:
    network = ms.amp.auto_mixed_precision(network.set_train(), way[:2])
optimizer = nn.Momentum(network.trainable_params(), 0.1, 0.9)
losses = []
if "Model" in way:
    class Losses(ms.train.Callback):
        def step_end(self, context):
            losses.append(float(context.original_args().net_outputs.asnumpy()))

    data = ms.dataset.NumpySlicesDataset((images, labels), shuffle=False).batch(6)
    ms.train.Model(network, loss, optimizer).train(4, data, callbacks=[Losses()], dataset_sink_mode=False)
else:
    def forward(x, y):
        return loss(network(x).astype(ms.float32), y)

    forward_and_back = ms.value_and_grad(forward, None, optimizer.parameters)

    def step(x, y):
        value, gradients = forward_and_back(x, y)
        optimizer(gradients)
        return value

    if "jit" in way:
        step = ms.jit(step)
    network.set_train()
    losses = [float(step(Tensor(images), Tensor(labels)).asnumpy()) for _ in range(4)]
network.set_train(False)
logits = network(Tensor(images)).asnumpy().tolist()
kinds = [type(value).__name__ for _, cell in network.cells_and_names() for value in vars(cell).values()]
print(json.dumps({"losses": losses, "logits": logits, "swapped": sum(kind.startswith("Swapped") for kind in kinds)}))
"""


# Runs a program once with each of some lists of arguments.
SCRIPT = """
import json, runpy, sys
path, calls = sys.argv[1:]
for arguments in json.loads(calls):
    sys.argv = [path, *arguments]
    runpy.run_path(path, run_name="__main__")
"""


def run(program: str, *calls: Sequence[str], auto: bool, folder: Path) -> list[str]:
    """The lines that a program prints, in one process with the arguments of each call in turn."""
    path = folder / "program.py"
    path.write_text(program)
    before = "import msaccel.kernels.auto" if auto else ""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-c", before + SCRIPT, str(path), json.dumps(calls)]
    return subprocess.check_output(command, cwd=folder, env=environment, text=True, timeout=900).splitlines()


OFTEN = ("function", "graph", "Model", "O1 in graph mode")


def results(ways: Sequence[str], auto: bool, folder: Path) -> list[dict[str, Any]]:
    lines = run(PROGRAM, *[(way,) for way in ways], auto=auto, folder=folder)
    return [json.loads(line) for line in lines if line.startswith('{"losses"')]


@pytest.mark.slow
@pytest.mark.parametrize("ways", [OFTEN, *soak(("jit",), ("Model in graph mode",), ("O2",))], ids=", ".join)
def test_a_program_trains_as_before(ways: tuple[str, ...], tmp_path: Path) -> None:
    native, automatic = (results(ways, auto, tmp_path) for auto in (False, True))
    for way, expected, found in zip(ways, native, automatic, strict=True):
        assert (expected["swapped"], found["swapped"]) == (0, 4), way
        tolerance = 5e-3 if "O" in way else 1e-5
        assert found["losses"] == pytest.approx(expected["losses"], rel=tolerance), way
        for mine, theirs in zip(found["logits"], expected["logits"], strict=True):
            assert mine == pytest.approx(theirs, abs=10 * tolerance), way


SINGLE = """
import logging
logging.basicConfig(level="INFO", format="%(name)s %(message)s", stream=__import__("sys").stdout)
import copy
import mindspore as ms
from mindspore import Tensor, nn, ops
from msaccel.kernels import restore

network, x = nn.SequentialCell(nn.Conv2d(3, 4, 3), nn.ReLU()), ops.ones((1, 3, 8, 8))
for _ in range(2):
    network(x)  # accelerated and logged once
print(type(copy.deepcopy(network)[0].conv2d).__name__)
restore(network)
network(x)
print(type(network[0].conv2d).__name__)
network.append(nn.Conv2d(4, 4, 1))
network(x)
print(type(network[2].conv2d).__name__)
narrow = ms.amp.custom_mixed_precision(network, white_list=[nn.Conv2d])
print(narrow(x).dtype)

def twice(x):
    return x + x

print(ms.amp.auto_mixed_precision(twice, "auto")(x).dtype)
elsewhere = nn.Conv2d(3, 4, 3)
ms.get_context = {"device_target": "GPU"}.get
elsewhere(x)
print(type(elsewhere.conv2d).__name__)
"""


def test_a_network_is_accelerated_once_and_stays_restored(tmp_path: Path) -> None:
    assert run(SINGLE, (), auto=True, folder=tmp_path) == [
        "msaccel.kernels SequentialCell: Replaced: 1 Conv2D.",
        "SwappedConvolution",
        "Conv2D",
        "msaccel.kernels Conv2d: Replaced: 1 Conv2D.",
        "SwappedConvolution",
        "msaccel.kernels SequentialCellOpt: Replaced: 2 Conv2D.",
        "Float32",
        "Float32",
        "msaccel.kernels msaccel.kernels.auto is for the CPU, and the device is GPU: nothing is replaced.",
        "Conv2D",
    ]


MINDCV = """
import sys
import mindcv, mindspore as ms, numpy as np
from mindspore import Tensor, ops

name, mode = sys.argv[1:]
side = 224 if name.endswith("224") else 96
ms.set_context(mode=ms.GRAPH_MODE if mode == "graph" else ms.PYNATIVE_MODE)
ms.set_seed(3)
network = mindcv.create_model(name, num_classes=4).set_train()
if "msaccel.kernels.auto" not in sys.modules:
    from msaccel.kernels import accelerate
    accelerate(network)
images = np.random.default_rng(2).standard_normal((2, 3, side, side)).astype(np.float32)

def loss(x, y):
    return ops.cross_entropy(network(x), y)

ms.set_seed(4)
value, gradients = ms.value_and_grad(loss, None, network.trainable_params())(
    Tensor(images), Tensor(np.array([0, 3], np.int32)))
print(value, [float(np.abs(gradient.asnumpy()).sum()) for gradient in gradients])
"""


@pytest.mark.soak  # the program above is a network, too
@pytest.mark.parametrize("mode", ["graph", "pynative"])
@pytest.mark.parametrize(
    "name",
    [
        "resnet18", "resnet50", "resnext50_32x4d", "mobilenet_v1_100", "mobilenet_v2_100", "mobilenet_v3_small_100",
        "densenet121", "googlenet", "efficientnet_b0", "shufflenet_v2_x1_0", "squeezenet1_1", "convnext_tiny",
        "vit_b_32_224",
    ],
)  # fmt: skip
def test_gradients_of_a_network_of_mindcv_are_those_that_accelerate_gives(name: str, mode: str, tmp_path: Path) -> None:
    pytest.importorskip("mindcv")
    asked, automatic = [run(MINDCV, (name, mode), auto=auto, folder=tmp_path)[-1] for auto in (False, True)]
    assert asked == automatic
