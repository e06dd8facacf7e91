"""msaccel against the tutorial's own script: whole processes in turn, so a machine that drifts slows both.

`python benchmarks/bench.py [--rounds N]` prints a table, and writes it with the machine and versions to
`benchmarks/results/latest.json` and `benchmarks/README.md`.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

from msaccel.data.fetch import locate

HERE = Path(__file__).parent
MARKER = "<!-- written by bench.py below this line -->"


def cases(mnist: Path) -> dict[str, list[str]]:
    """The commands to be timed; the first one is what the others are compared with."""
    job = str(HERE / "msaccel_job.py")
    return {
        "tutorial 000, its own script (32 × 4)": [str(HERE / "tutorial_lenet.py"), str(mnist), "200"],
        "msaccel, the same recipe (32 × 4)": [job, "experiment=grad_accum_lenet"],
        "msaccel, LeNet, batch 32 (the default job)": [job],
        "msaccel, LeNet, batch 256": [job, "train.epochs=2", "train.batch_size=256"],
        "msaccel, MLP, batch 32": [job, "train.epochs=1", "model=mlp"],
    }


def measure(command: list[str]) -> dict[str, float]:
    quiet = {**os.environ, "GLOG_v": "3", "MLFLOW_LOGGING_LEVEL": "WARNING", "OMP_NUM_THREADS": "2"}
    ended = subprocess.run([sys.executable, *command], env=quiet, stdout=subprocess.PIPE, check=True, text=True)
    result: dict[str, float] = json.loads(ended.stdout.splitlines()[-1])
    return result


def machine() -> str:
    names = [
        line.split(":")[1].strip() for line in Path("/proc/cpuinfo").read_text().splitlines() if "model name" in line
    ]
    return f"{len(names)} × {names[0]}, Python {platform.python_version()}, MindSpore {version('mindspore')}"


def table(results: dict[str, list[dict[str, float]]]) -> str:
    """Markdown: medians with minimum and maximum, and the ratio of medians to the first case."""
    lines = [
        "| case | samples/s, median (min to max) | ratio to the tutorial | tracking, share of training | peak MB | n |",
        "|---|---|---|---|---|---|",
    ]
    reference = 0.0
    for name, runs in results.items():
        speeds = [run["samples_per_sec"] for run in runs]
        median = statistics.median(speeds)
        reference = reference or median
        share = [run["tracking_share"] for run in runs if "tracking_share" in run]
        memory = [run["peak_mb"] for run in runs if "peak_mb" in run]
        lines.append(
            f"| {name} | {median:,.0f} ({min(speeds):,.0f} to {max(speeds):,.0f}) | {median / reference:.1f} | "
            f"{f'{statistics.median(share):.2%}' if share else '–'} | "
            f"{f'{statistics.median(memory):,.0f}' if memory else '–'} | {len(runs)} |"
        )
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    rounds = parser.parse_args().rounds
    chosen = cases(locate("mnist", None, os.environ.get("MSACCEL_CACHE", "~/.cache/msaccel")))
    results: dict[str, list[dict[str, float]]] = {name: [] for name in chosen}
    for number in range(rounds):
        for name, command in chosen.items():
            results[name].append(measure(command))
            print(
                f"round {number + 1}/{rounds}: {name}: {results[name][-1]['samples_per_sec']:,.0f} samples/s",
                flush=True,
            )
    text = f"`make bench`, {rounds} rounds in turn, on {machine()}:\n\n{table(results)}\n"
    print(f"\n{text}")
    (HERE / "results").mkdir(exist_ok=True)
    (HERE / "results" / "latest.json").write_text(json.dumps({"machine": machine(), "results": results}, indent=2))
    readme = HERE / "README.md"
    readme.write_text(f"{readme.read_text().split(MARKER)[0]}{MARKER}\n\n{text}")


if __name__ == "__main__":
    main()
