"""What ranks cost: updates per second of 1, 2 and 4 ranks, real and virtual, and where the time goes.

`python benchmarks/ranks.py [--rounds N] [--model lenet|resnet18]` starts the ranks itself. In one set of processes the
variants take turns, a few updates each, so that a machine that drifts slows all of them:

* mean: gradients reduced in buckets of 25 MB,
* tensor by tensor: each reduced by itself (`device.bucket_mb=0`),
* no reduction: every rank by itself, which is what the reduction is measured against,
* adasum: over all ranks, in its delta mode; with real ranks its exchange of steps also by itself.

Prints a table and writes it to `benchmarks/ranks_<model>.md`. More ranks than cores measure how they take turns.
"""

from __future__ import annotations

import argparse
import json
import os
import secrets
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
MODELS = {
    "lenet": ["data.limit_train=4096", "data.limit_eval=100", "train.batch_size=32"],
    "resnet18": [
        "model=resnet50", "model.depth=18", "model.image_size=32", "data=synthetic", "data.train_size=512",
        "data.test_size=16", "train.batch_size=8",
    ],
}  # fmt: skip
VARIANTS = {
    "mean": [],
    "tensor by tensor": ["device.bucket_mb=0"],
    "no reduction": [],
    "adasum": ["accel=adasum", "accel.adasum.scope=rank"],
}
EXCHANGE = "adasum's exchange"
UPDATES = {"lenet": 40, "resnet18": 4}  # of a turn


def measure(model: str, ranks: int, real: bool, rounds: int) -> dict[str, list[float]]:
    """In a rank: seconds per update of each variant, round after round."""
    from msaccel.config.compose import from_overrides
    from msaccel.distributed.communicator import SINGLE_PROCESS
    from msaccel.step.batch_norm import RunningStatistics
    from msaccel.step.update import Elsewhere
    from msaccel.training.builder import Builder, build_network, prepare_device
    from msaccel.training.job import cluster, load_data
    from msaccel.training.plan import Plan

    names = [name for name in VARIANTS if ranks > 1 or name == "mean"]
    names = names if real else [name for name in names if name in ("mean", "adasum")]
    updates: dict[str, Any] = {}
    device = ["device=cpu4", f"device.ranks_per_server={ranks}"]
    configs = {name: from_overrides([*MODELS[model], *device, *VARIANTS[name]]) for name in names}
    first = configs["mean"]
    prepare_device(replace(first.device, simulate="never" if real else "always"), 0)
    comm = cluster(first.device) if real and ranks > 1 else SINGLE_PROCESS
    data = load_data(first)
    here = [comm.rank] if real else range(ranks)
    for name, config in configs.items():
        network = build_network(config)
        statistics_of = RunningStatistics(network, here, comm)
        alone = SINGLE_PROCESS if name == "no reduction" else comm
        updates[name] = Builder(network, config, alone, statistics_of, Path()).update(10_000)
    every = (ranks for epoch in range(10_000) for ranks in Plan(first, len(data.train)).budgets[0].sampler.epoch(epoch))

    def turn(name: str, count: int) -> float:
        chosen = []
        for window_of in (next(every) for _ in range(count)):
            windows = [
                [data.train.batch(indices) for indices in micro_batches]
                if rank in here
                else Elsewhere(tuple(map(len, micro_batches)))
                for rank, micro_batches in enumerate(window_of)
            ]
            chosen.append(windows)
        comm.barrier()
        started = time.perf_counter()
        for windows in chosen:
            signals = updates[name](windows, 1e-4)
        signals.outcome.asnumpy()
        return (time.perf_counter() - started) / count

    def exchange() -> float:
        adasum = updates["adasum"]
        comm.barrier()
        started = time.perf_counter()
        adasum.combine(*adasum.zeros)[0].asnumpy()
        return time.perf_counter() - started

    times: dict[str, list[float]] = {name: [] for name in names}
    for name in names:
        turn(name, 2)  # compiles
    for _ in range(rounds):
        for name in names:
            times[name].append(turn(name, UPDATES[model]))
        if real and ranks > 1:
            times.setdefault(EXCHANGE, []).append(exchange())
    return times if comm.is_main else {}


def start(model: str, ranks: int, real: bool, rounds: int) -> dict[str, list[float]]:
    """Starts the ranks and returns what the first one has measured."""
    from msaccel.config.compose import from_overrides
    from msaccel.distributed import handshake
    from msaccel.launch import rank_env
    from msaccel.launch.processes import last_lines

    device = from_overrides(["device=cpu4", f"device.ranks_per_server={ranks}"]).device
    device = replace(device, simulate="never" if real else "always")
    env = {**os.environ, "GLOG_v": "3", "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    env[handshake.VARIABLE] = secrets.token_hex(32)
    with tempfile.TemporaryDirectory() as folder:
        result = Path(folder, "result.json")
        command = [sys.executable, __file__, "--worker", str(result), "--model", model, "--rounds", str(rounds)]
        command += ["--ranks", str(ranks), *(["--real"] if real else [])]
        processes = rank_env.start(device, command, env, Path(folder, "logs"))
        try:
            while processes.running() and not processes.failed():
                time.sleep(0.1)
            for failed in processes.failed():
                print(*last_lines(failed, 60), sep="\n", file=sys.stderr)
                raise subprocess.CalledProcessError(failed.popen.returncode, failed.label)
        finally:
            processes.kill()
        return json.loads(result.read_text())


def table(model: str, measured: dict[tuple[int, bool], dict[str, list[float]]]) -> str:
    batch = int(MODELS[model][-1].split("=")[1])
    lines = [
        "| ranks | samples/s, mean | ms an update (min to max) | reduction | tensor by tensor | adasum | exchange |",
        "|---|---|---|---|---|---|---|",
    ]
    for (ranks, real), times in measured.items():
        median = {name: statistics.median(values) for name, values in times.items()}
        mean = median["mean"]
        share = f"{1 - median['no reduction'] / mean:.0%}" if "no reduction" in median else "–"
        others = [f"{median[name] / mean:.2f} ×" if name in median else "–" for name in ("tensor by tensor", "adasum")]
        exchanged = f"{median[EXCHANGE] / median['adasum']:.0%}" if EXCHANGE in median else "–"
        lines.append(
            f"| {ranks} {'real' if real else 'virtual'} | {batch * ranks / mean:,.0f} | {1e3 * mean:,.1f} "
            f"({1e3 * min(times['mean']):,.1f} to {1e3 * max(times['mean']):,.1f}) | {share} | {' | '.join(others)} "
            f"| {exchanged} |"
        )
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", choices=MODELS, default="lenet")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--worker", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--ranks", type=int, default=1, help=argparse.SUPPRESS)
    parser.add_argument("--real", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.worker:
        times = measure(given.model, given.ranks, given.real, given.rounds)
        if times:
            given.worker.write_text(json.dumps(times))
        sys.stdout.flush()
        os._exit(0)
    from bench import machine

    measured = {}
    for ranks in (1, 2, 4):
        for real in (True, False) if ranks > 1 else (True,):
            measured[ranks, real] = start(given.model, ranks, real, given.rounds)
            print(f"{ranks} {'real' if real else 'virtual'}: done", flush=True)
    command = f"`python benchmarks/ranks.py --model {given.model}`"
    head = f"{command}, {given.rounds} rounds in turn, medians, on {machine()}:"
    text = f"{head}\n\n{table(given.model, measured)}\n"
    print(text)
    (HERE / f"ranks_{given.model}.md").write_text(text)


if __name__ == "__main__":
    main()
