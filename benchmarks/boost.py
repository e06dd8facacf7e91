"""What `mindspore.boost` does to the time of an update on a CPU, part by part: writes `benchmarks/boost.md`.

`python benchmarks/boost.py [--rounds N]` trains a ResNet-18 by MindSpore's `Model` and with MindSpore's own operators:
as it is, and with the parts of `boost_level="O1"`. The network is MindCV's, with blocks that end in `out + identity`,
since `less_bn` removes no norm from MindCV's own, which end in `out += identity`. A CPU has no operator for one part of
`less_bn`, centralized gradients, which is off (`gc_flag=False`).

Time: each round is a process that makes one update of each part in turn. The time of an update is the mean over
`UPDATES` of them, since about a third freeze some layers; which ones is drawn by NumPy, in every round from another
seed. Memory: the peak of a process that makes `UPDATES` updates of one part. Building is the time until the first of
them is done.

Needs MindCV, which the extra "test" installs.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from bench import machine
from measure import run_script, spread

from msaccel.devices.machine import peak_mb

BATCH, SIDE, CLASSES, UPDATES = 8, 64, 10, 60
PARTS: dict[str, dict[str, dict[str, Any]] | None] = {
    "plain": None,
    "`less_bn`: fewer norms": {"less_bn": {"fn_flag": False, "gc_flag": False}},
    "`less_bn`: fewer norms and a normalised last layer": {"less_bn": {"gc_flag": False}},
    "`grad_freeze`": {"grad_freeze": {}},
    "O1: both": {"less_bn": {"gc_flag": False}, "grad_freeze": {}},
}


def build(part: str) -> Callable[[], object]:
    """The function that makes one update, from weights and images drawn with MindSpore's and NumPy's seeds."""
    from mindcv.models.resnet import BasicBlock, ResNet
    from mindspore import Tensor, nn
    from mindspore.boost import AutoBoost, boost
    from mindspore.train import Model

    class Block(BasicBlock):
        def construct(self, images: Tensor) -> Tensor:
            out = self.bn2(self.conv2(self.relu(self.bn1(self.conv1(images)))))
            return self.relu(out + (images if self.down_sample is None else self.down_sample(images)))

    AutoBoost._instance = None  # which would apply the settings of the first `Model` to all
    network = ResNet(Block, [2, 2, 2, 2], num_classes=CLASSES)
    loss = nn.SoftmaxCrossEntropyWithLogits(sparse=True, reduction="mean")
    settings = PARTS[part]
    more: dict[str, Any] = {}
    if settings is not None:
        switches = {key: key in settings for key in boost._boost_config_level["O0"]}
        more = {"boost_level": "O1", "boost_config_dict": {"boost": {"mode": "manual", **switches}, **settings}}
    optimizer = nn.Momentum(network.trainable_params(), 1e-3, 0.9)
    step = Model(network, loss, optimizer, metrics={"accuracy"}, **more).train_network.set_train()
    images = Tensor(np.random.standard_normal((BATCH, 3, SIDE, SIDE)).astype(np.float32))
    labels = Tensor(np.random.randint(0, CLASSES, BATCH).astype(np.int32))
    first = network.trainable_params()[0]

    def update() -> None:
        step(images, labels)
        first.asnumpy()  # waits for the update

    return update


def prepare(seed: int) -> None:
    import mindspore as ms

    ms.set_context(mode=ms.GRAPH_MODE)
    ms.set_device("CPU")
    ms.set_seed(seed)
    np.random.seed(seed)


def seconds(train: Callable[[], object]) -> float:
    started = time.perf_counter()
    train()
    return time.perf_counter() - started


def times(seed: int) -> dict[str, float]:
    """Milliseconds of an update, by part."""
    prepare(seed)
    updates = {part: build(part) for part in PARTS}
    for _ in range(3):
        for update in updates.values():
            update()
    rounds = [{part: seconds(update) for part, update in updates.items()} for _ in range(UPDATES)]
    return {part: 1e3 * statistics.mean(of[part] for of in rounds) for part in PARTS}


def building(part: str) -> dict[str, float]:
    """Seconds until the first update is done, and peak MB."""
    prepare(0)
    started = time.perf_counter()
    update = build(part)
    update()
    taken = time.perf_counter() - started
    for _ in range(UPDATES - 1):
        update()
    return {"seconds": taken, "peak_mb": peak_mb()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seed", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--part", choices=PARTS, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.seed is not None:
        print(json.dumps(times(given.seed)))
        return
    if given.part:
        print(json.dumps(building(given.part)))
        return
    environment = {**os.environ, "GLOG_v": "3"}
    rounds = [run_script(["boost.py", "--seed", str(seed)], environment) for seed in range(given.rounds)]
    lines = [
        f"`python benchmarks/boost.py`, {given.rounds} rounds, a ResNet-18, batches of {BATCH} images of "
        f"{SIDE} × {SIDE}, on {machine()}; medians, in brackets the least and the most:",
        "",
        '| part of `boost_level="O1"` | update, ms | time relative to plain | building, s | peak MB |',
        "|---|---|---|---|---|",
    ]
    for part in PARTS:
        own = run_script(["boost.py", "--part", part], environment)
        took = spread([of[part] for of in rounds], ".0f")
        ratio = spread([of[part] / of["plain"] for of in rounds], ".2f")
        lines.append(f"| {part} | {took} | {ratio} | {own['seconds']:.0f} | {own['peak_mb']:.0f} |")
    text = "\n".join([*lines, ""])
    Path(__file__).with_suffix(".md").write_text(text)
    print(text)


if __name__ == "__main__":
    main()
