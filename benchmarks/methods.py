"""What each method but dimension reduction costs: time and memory of training with it, beside its baseline.

`python benchmarks/methods.py [--rounds N] [--only CASE ...]` builds a method and its baseline in one process, in which
they take turns on the same samples, so that a machine that drifts slows both. A process's ratio is the median over its
turns; the table has the median and the range over rounds, which are processes of their own. Memory is the peak of a
process that trains one of the two alone. All of it with one thread. Prints a table and writes it to
`benchmarks/methods.md`.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from bench import machine
from measure import peak_mb

HERE = Path(__file__).parent
TURNS = 20


@dataclass(frozen=True)
class Workload:
    """A network with its data.

    Attributes:
        samples: of a turn, the same for a method and its baseline.
    """

    overrides: tuple[str, ...]
    samples: int


@dataclass(frozen=True)
class Case:
    """A method and its baseline, each by its overrides."""

    method: tuple[str, ...]
    baseline: tuple[str, ...] = ()


WORKLOADS = {
    "LeNet": Workload(("data.limit_train=8192", "data.limit_eval=100"), 4096),
    "ResNet-20": Workload(
        ("model=resnet50", "model.depth=20", "data=synthetic", "model.image_size=32", "data.train_size=1024",
         "data.test_size=32"), 256,
    ),
}  # fmt: skip
_FOUR = ("device=cpu4", "device.simulate=always")
_FOUR_STEPS = ("accel=accum", "accel.accum.steps=4")
CASES = {
    "accum, 4 × 32 instead of 32": Case(_FOUR_STEPS),
    "accum, 4 × 32 instead of 128": Case(_FOUR_STEPS, ("train.batch_size=128",)),
    "clip": Case(("accel=clip",)),
    "dynamic loss scale": Case(("loss_scale.mode=dynamic",)),
    "average (ema)": Case(("accel=average", "accel.average.form=ema", "accel.average.start=0")),
    "sam": Case(("accel=sam",)),
    "freeze, half of the layers": Case(("accel=freeze", "accel.freeze.start=0", "accel.freeze.steps=1")),
    "adasum of 4 virtual ranks": Case((*_FOUR, "accel=adasum", "accel.adasum.scope=rank"), _FOUR),
    "localsgd of 4 virtual ranks": Case((*_FOUR, "accel=localsgd"), _FOUR),
}


def side(overrides: tuple[str, ...]) -> Callable[[int], float]:
    """Builds a job as its worker does; the seconds of training on so many samples."""
    from msaccel.config.compose import from_overrides
    from msaccel.distributed.communicator import SINGLE_PROCESS
    from msaccel.step.batch_norm import RunningStatistics
    from msaccel.training.builder import Builder, build_network, prepare_device
    from msaccel.training.job import load_data
    from msaccel.training.loader import Loader
    from msaccel.training.plan import Plan

    config = from_overrides([*overrides, "train.epochs=1000", "device.threads=1"])
    prepare_device(config.device, 0)
    data, network = load_data(config), build_network(config)
    running = RunningStatistics(network, range(config.device.ranks), SINGLE_PROCESS)
    plan = Plan(config, len(data.train))
    builder = Builder(network, config, SINGLE_PROCESS, running, Path())
    (stage,) = stages = builder.stages(plan)
    weights = builder.evaluation_weights(plan, stages)
    loader, sampler = Loader(data.train, SINGLE_PROCESS), stage.budget.sampler
    every = (windows for epoch in range(1000) for windows in loader.epoch(sampler, epoch))

    def turn(samples: int) -> float:
        drawn, done = [], 0
        while done < samples:
            drawn.append(next(every))
            done += sum(len(labels) for window in drawn[-1] for _, labels in window)
        started = time.perf_counter()
        for windows in drawn:
            signals = stage.update.at(0, stage.budget.updates)(windows, 1e-4)
            if weights:
                weights.after_update()
        signals.outcome.asnumpy()
        return (time.perf_counter() - started) / done

    return turn


def worker(workload: Workload, sides: list[tuple[str, ...]]) -> list[float]:
    """In a process of its own: the ratio of the first side to the second, or the peak memory in MB of one alone."""
    turns = [side((*workload.overrides, *overrides)) for overrides in sides]
    for turn in turns:
        turn(workload.samples // 2)  # compiles
    if len(turns) == 1:
        turns[0](workload.samples)
        return [peak_mb()]
    ratios = []
    for number in range(TURNS):
        seconds = {turn: turn(workload.samples) for turn in (turns if number % 2 else turns[::-1])}
        ratios.append(seconds[turns[0]] / seconds[turns[1]])
    return ratios


def start(workload: str, case: str, *sides: str) -> float:
    """The median of what a worker has measured."""
    env = {**os.environ, "GLOG_v": "3", "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    command = [sys.executable, __file__, "--worker", workload, case, *sides]
    done = subprocess.run(command, env=env, check=True, capture_output=True, text=True)
    return statistics.median(json.loads(done.stdout.splitlines()[-1]))


def rows(rounds: int, only: list[str]) -> Iterator[str]:
    for workload in WORKLOADS:
        for case in only or CASES:
            times = [start(workload, case, "method", "baseline") for _ in range(rounds)]
            memory = start(workload, case, "method") / start(workload, case, "baseline")
            spread = f"{statistics.median(times):.2f} ({min(times):.2f} to {max(times):.2f})"
            yield f"| {workload} | {case} | {spread} | {memory:.2f} |"
            print(f"{workload}, {case}: {spread}", file=sys.stderr)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", nargs="*", default=[], choices=CASES)
    parser.add_argument("--worker", nargs="+", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.worker:
        workload, case, *sides = given.worker
        print(json.dumps(worker(WORKLOADS[workload], [getattr(CASES[case], name) for name in sides])))
        return
    head = f"`python benchmarks/methods.py`, {given.rounds} rounds of {TURNS} turns, one thread, on {machine()}:"
    table = [
        "| network | method | time ÷ baseline, median (min to max) | peak memory ÷ baseline |",
        "|---|---|---|---|",
    ]
    text = "\n".join([head, "", *table, *rows(given.rounds, given.only), ""])
    print(text)
    if not given.only:
        (HERE / "methods.md").write_text(text)


if __name__ == "__main__":
    main()
