"""What each method costs: time and memory of training with it, beside its baseline.

Left out are `dimreduce` and `resize`, whose updates are of several kinds.

`python benchmarks/methods.py [--rounds N] [--only CASE ...]` builds a method and its baseline in one process, in which
they take turns on the same samples, so that a machine that drifts slows both. A process's ratio is the median over its
turns; the table has the median and the range over rounds, which are processes of their own. Memory is the peak of a
process that trains one of the two alone. All of it with one thread. Prints a table and writes it to
`benchmarks/methods.md`; with `--only` it replaces the rows of those cases alone. A row names its processor.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

from measure import run_script, spread

from msaccel.devices.machine import peak_mb
from msaccel.tracking.provenance import processor

HERE = Path(__file__).parent


@dataclass(frozen=True)
class Case:
    """A method and its baseline, each by its overrides; `on` names the networks that have what the method changes."""

    method: tuple[str, ...]
    baseline: tuple[str, ...] = ()
    on: tuple[str, ...] = ("LeNet", "ResNet-20")


WORKLOADS = {
    "LeNet": ("data.limit_train=8192", "data.limit_eval=100"),
    "ResNet-20": (
        "model=resnet50", "model.depth=20", "data=synthetic", "model.image_size=32", "data.train_size=1024",
        "data.test_size=32",
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
    "powersgd of 4 virtual ranks": Case((*_FOUR, "accel=powersgd", "accel.powersgd.start=0"), _FOUR),
    "centralize": Case(("accel=centralize",)),
    "lessbn": Case(("accel=lessbn",), on=("ResNet-20",)),
    "bfloat16": Case(("precision=bf16",)),
    **{
        f"{name} instead of momentum": Case((f"optimizer={name}",))
        for name in ("adamw", "lars", "lamb", "lion", "muon", "shampoo", "schedulefree")
    },
}


def worker(workload: tuple[str, ...], sides: list[tuple[str, ...]]) -> list[float]:
    """In a process of its own: the ratio of the first side to the second, or the peak memory in MB of one alone."""
    from msaccel.training.speed_round import TimedJob, take_turns

    common = (*workload, "train.epochs=1000", "device.threads=1", "optimizer.lr=0.0001")
    jobs = [TimedJob((*common, *overrides)) for overrides in sides]
    if len(jobs) == 1:
        take_turns(jobs, 1)
        return [peak_mb()]
    _, seconds = take_turns(jobs)
    return [method / baseline for method, baseline in zip(*seconds, strict=True)]


def start(workload: str, case: str, *sides: str) -> float:
    """The median of what a worker has measured."""
    env = {**os.environ, "GLOG_v": "3", "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    return statistics.median(run_script(["methods.py", "--worker", workload, case, *sides], env))


def rows(rounds: int, only: list[str]) -> Iterator[tuple[tuple[str, str], str]]:
    """Network and case, and the row."""
    for workload in WORKLOADS:
        for case in (case for case in only or CASES if workload in CASES[case].on):
            times = [start(workload, case, "method", "baseline") for _ in range(rounds)]
            memory = start(workload, case, "method") / start(workload, case, "baseline")
            time = spread(times, ".2f")
            yield (workload, case), f"| {workload} | {case} | {time} | {memory:.2f} | {processor()} |"
            print(f"{workload}, {case}: {time}", file=sys.stderr)


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
    made_by = f"{given.rounds} rounds of turns, one thread, MindSpore {version('mindspore')}"
    head = f"`python benchmarks/methods.py`, {made_by}:"
    table = [
        "| network | method | time ÷ baseline, median (min to max) | peak memory ÷ baseline | processor |",
        "|---|---|---|---|---|",
    ]
    known = written(head) if given.only else {}
    found = known | dict(rows(given.rounds, given.only))
    ordered = [found[workload, case] for workload in WORKLOADS for case in CASES if (workload, case) in found]
    text = "\n".join([head, "", *table, *ordered, ""])
    print(text)
    (HERE / "methods.md").write_text(text)


def written(head: str) -> dict[tuple[str, str], str]:
    """The rows of the table that lies there, by network and case."""
    first, *lines = (HERE / "methods.md").read_text().splitlines()
    if first != head:
        sys.exit(f"benchmarks/methods.md is of other conditions ({first}); leave out --only.")
    cells = {line: [cell.strip() for cell in line.split("|")] for line in lines if line.startswith("| ")}
    return {(cell[1], cell[2]): line for line, cell in cells.items()}


if __name__ == "__main__":
    main()
