"""Networks of MindCV on a CPU: MindSpore as it is, with `accelerate` of `msaccel.kernels`, and PyTorch's own.

`python benchmarks/zoo.py [--rounds N] [--only NETWORK ...]` trains each network for a few steps on random images, each
time in a process of its own: MindSpore in the first round only, because its steps take seconds, then the other two in
turn. The processes of MindSpore begin with the same weights and images, and compare their outputs and gradients with
the statistics of batch norm fixed. Peak memory is that of the process. One more process of MindSpore's says which share
of its time oneDNN's reference kernels take: loops without vectors, which `accelerate` replaces. Prints the rows of a
table, writes it to `benchmarks/zoo.md` and a summary of it into the READMEs (`zoo_summary.py`); ends with 1 if outputs
or gradients differ by more than `TOLERANCES`.

VGG is not among them: MindCV's takes images of 224 × 224, where a step of MindSpore's takes minutes.

Needs MindCV, which the extra "test" installs. PyTorch's networks are torchvision's, if it can be imported.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import zoo_summary
from bench import machine
from measure import output_of, result_in, run_script, spread

from msaccel.devices.machine import peak_mb

HERE = Path(__file__).parent
BATCH, CLASSES = 4, 10
# Relative norms of the differences between MindSpore's operators and ours. Outputs differ by rounding. Gradients also
# where a value crosses the kink of a ReLU: an input that is changed by 1e-7 moves them by up to 4e-3.
TOLERANCES = {"outputs": 1e-5, "gradients": 1e-2}
KERNEL = 6  # its place in a line of ONEDNN_VERBOSE=1
STEPS, SECONDS = 15, 10.0  # a process times so many steps, or fewer if they take longer
# By MindCV's names: torchvision's name or None, and the height and width of the images.
NETWORKS: dict[str, tuple[str | None, int]] = {
    "resnet18": ("resnet18", 96),
    "resnet50": ("resnet50", 96),
    "resnext50_32x4d": ("resnext50_32x4d", 96),
    "mobilenet_v1_100": (None, 96),
    "mobilenet_v2_100": ("mobilenet_v2", 96),
    "mobilenet_v3_small_100": ("mobilenet_v3_small", 96),
    "densenet121": ("densenet121", 96),
    "googlenet": ("googlenet", 96),
    "efficientnet_b0": ("efficientnet_b0", 96),
    "shufflenet_v2_x1_0": ("shufflenet_v2_x1_0", 96),
    "squeezenet1_1": ("squeezenet1_1", 96),
    "convnext_tiny": ("convnext_tiny", 96),
    "vit_b_32_224": ("vit_b_32", 224),
}


def batch(name: str) -> tuple[np.ndarray, np.ndarray]:
    """Images (4, 3, height, width) for a network, and labels."""
    draw, side = np.random.default_rng(0), NETWORKS[name][1]
    images = draw.standard_normal((BATCH, 3, side, side)).astype(np.float32)
    return images, draw.integers(0, CLASSES, BATCH).astype(np.int32)


def mindspore_worker(name: str, side: str, folder: Path) -> dict[str, Any]:
    """Times the training steps, and leaves the outputs and the gradients before them in files of `folder`."""
    import mindcv
    import mindspore as ms
    from mindspore import Tensor, nn, ops

    from msaccel.kernels import accelerate

    ms.set_context(mode=ms.GRAPH_MODE)
    ms.set_device("CPU")
    ms.set_seed(1)
    network = mindcv.create_model(name, num_classes=CLASSES)
    report = [accelerate(network)] if side == "accelerated" else []
    images, labels = map(Tensor, batch(name))

    class Loss(nn.Cell):
        def __init__(self, network: nn.Cell) -> None:
            super().__init__(auto_prefix=False)
            self.network = network

        def construct(self, x: Tensor, y: Tensor) -> Tensor:
            found = self.network(x)
            return ops.cross_entropy(found[0] if isinstance(found, tuple) else found, y)

    loss = Loss(network)
    if not (folder / f"{side}.outputs").exists():
        network.set_train(False)
        found = network(images)
        (found[0] if isinstance(found, tuple) else found).asnumpy().tofile(folder / f"{side}.outputs")
        gradients = ms.grad(loss, None, network.trainable_params())(images, labels)
        np.concatenate([tensor.asnumpy().ravel() for tensor in gradients]).tofile(folder / f"{side}.gradients")
    optimizer = nn.Momentum(network.trainable_params(), 1e-3, 0.9)
    if side == "accelerated":
        report.append(accelerate(optimizer))
    step = nn.TrainOneStepCell(loss, optimizer).set_train()
    seconds = timed(lambda: step(images, labels).asnumpy())
    return {"seconds": seconds, "peak_mb": peak_mb(), "report": "\n".join(map(str, report))}


def torch_worker(name: str, peer: str) -> dict[str, Any]:
    """PyTorch eager, in the faster of its two memory layouts."""
    import torch
    import torchvision

    torch.set_num_threads(len(os.sched_getaffinity(0)))
    images, labels = (torch.from_numpy(array) for array in batch(name))
    found = []
    for layout in (torch.contiguous_format, torch.channels_last):
        options = {"aux_logits": False, "init_weights": True} if peer == "googlenet" else {}
        network = torchvision.models.get_model(peer, num_classes=CLASSES, **options).to(memory_format=layout)
        laid, optimizer = images.to(memory_format=layout), torch.optim.SGD(network.parameters(), 1e-3, 0.9)

        def train(network: Any = network, laid: Any = laid, optimizer: Any = optimizer) -> None:
            optimizer.zero_grad()
            torch.nn.functional.cross_entropy(network(laid), labels.long()).backward()
            optimizer.step()

        found.append(timed(train))
    return {"seconds": min(found, key=statistics.median), "peak_mb": peak_mb()}


def timed(train: Callable[[], Any]) -> list[float]:
    """Seconds of each step after the first."""
    train()
    seconds: list[float] = []
    while len(seconds) < STEPS and sum(seconds) < SECONDS:
        started = time.perf_counter()
        train()
        seconds.append(time.perf_counter() - started)
    return seconds


def differences(folder: Path) -> dict[str, float]:
    """Of the accelerated side's outputs and gradients from MindSpore's: relative norms, NaN if any is not finite."""
    found = {}
    for name in TOLERANCES:
        native, accelerated = (np.fromfile(folder / f"{side}.{name}", np.float32) for side in ("native", "accelerated"))
        found[name] = float(np.linalg.norm(accelerated - native) / np.linalg.norm(native))
    return found


def reference_share(printed: str) -> float:
    """The share of MindSpore's step in oneDNN's reference kernels.

    Args:
        printed: by a process with ONEDNN_VERBOSE=1, a line for each call with its kernel and milliseconds.
    """
    calls = [line.split(",") for line in printed.splitlines() if line.startswith("onednn_verbose") and ",exec," in line]
    seconds = result_in(printed)["seconds"]
    timed_calls = calls[len(calls) // (len(seconds) + 1) :]  # without the first step
    return sum(float(call[-1]) for call in timed_calls if "ref" in call[KERNEL]) / (1e3 * sum(seconds))


def row(name: str, rounds: int) -> tuple[str, list[str]]:
    """A line of the table, and a sentence for each difference beyond its tolerance."""
    peer = NETWORKS[name][0]
    sides = ["native", "accelerated"]
    if peer and importlib.util.find_spec("torchvision"):
        sides.append("torch")
    runs: dict[str, list[dict[str, Any]]] = {side: [] for side in sides}
    worker, environment = ["zoo.py", "--worker", name], {**os.environ, "GLOG_v": "3"}
    with tempfile.TemporaryDirectory() as made:
        for number in range(rounds):
            for side in sides[1:] if number else sides:
                runs[side].append(run_script([*worker, side, made], environment))
        share = reference_share(output_of([*worker, "native", made], environment | {"ONEDNN_VERBOSE": "1"}))
        found = differences(Path(made))
    beyond = [
        f"{name}: the {what} differ by {found[what]:.0e}, and by {most:.0e} at most they may."
        for what, most in TOLERANCES.items()
        if not found[what] <= most
    ]
    times = {side: [1e3 * statistics.median(run["seconds"]) for run in of] for side, of in runs.items()}
    time_of = {side: statistics.median(of) for side, of in times.items()}
    peaks = {side: max(run["peak_mb"] for run in of) for side, of in runs.items()}
    with_torch = "torch" in runs
    torch_step = spread(times["torch"], ".0f") if with_torch else "none"
    torch_ratio = f"{time_of['torch'] / time_of['accelerated']:.2f}" if with_torch else ""
    ratio = time_of["native"] / time_of["accelerated"]
    memory = " / ".join(f"{peaks[side]:.0f}" for side in runs)
    print(f"{name}: {ratio:.1f} times as fast\n{runs['accelerated'][0]['report']}", file=sys.stderr)
    line = (
        f"| {name} | {time_of['native']:.0f} | {share:.0%} | {spread(times['accelerated'], '.0f')} | {ratio:.1f} | "
        f"{torch_step} | {torch_ratio} | {memory} | {found['outputs']:.0e} | {found['gradients']:.0e} |"
    )
    return line, beyond


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", nargs="*", default=[], choices=NETWORKS)
    parser.add_argument("--worker", nargs=3, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.worker:
        name, side, folder = given.worker
        peer = NETWORKS[name][0]
        done = torch_worker(name, peer) if side == "torch" and peer else mindspore_worker(name, side, Path(folder))
        print(json.dumps(done))
        return 0
    head = (
        f"`python benchmarks/zoo.py`, MindSpore in graph mode, rounds: {given.rounds} (MindSpore alone: one), "
        f"batches of {BATCH} images of 96 × 96 (ViT: 224 × 224), on {machine()}:"
    )
    table = [
        "| network | MindSpore, ms | of that in reference kernels | accelerated, ms | times as fast | PyTorch, ms | "
        "PyTorch ÷ accelerated | peak MB, in that order | outputs differ by | gradients by |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    lines, beyond = [head, "", *table], []
    for name in given.only or NETWORKS:
        line, wrong = row(name, given.rounds)
        lines.append(line)
        beyond += wrong
        print(line, flush=True)
    if not given.only:
        (HERE / "zoo.md").write_text("\n".join([*lines, ""]))
        zoo_summary.write()
    print(*beyond, sep="\n", end="\n" if beyond else "", file=sys.stderr)
    return 1 if beyond else 0


if __name__ == "__main__":
    sys.exit(main())
