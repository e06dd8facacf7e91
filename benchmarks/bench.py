"""msaccel against the tutorials' way, PyTorch and TensorFlow: whole processes in turn, as a machine may drift.

`python benchmarks/bench.py [--rounds N] [--only CASE...] [--skip-slow]` measures case by case. After each round the
case's table is written into `benchmarks/README.md`, and every single run to `benchmarks/results/CASE.json`.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import platform
import subprocess
import sys
from importlib.metadata import packages_distributions, version
from pathlib import Path
from typing import Any

from cases import CASES
from measure import run_script
from table import Row, head, table

from msaccel import kernels, schema
from msaccel.compare.render.card import write_into
from msaccel.config.compose import from_overrides
from msaccel.config.derived import products
from msaccel.data.download.fetch import locate
from msaccel.data.sets import mnist
from msaccel.launch.launcher import environment
from msaccel.tracking.provenance import processor

HERE = Path(__file__).parent
MISSING = "not installed: pip install -e .[bench]"
PYTORCH = {
    "pytorch": ("PyTorch eager", "eager"),
    "compiled": ("torch.compile", "compile"),
    "autocast": ("PyTorch, bfloat16 autocast", "bf16"),
}
SKIPPED = "not run (--skip-slow)"


def measure(command: list[str]) -> dict[str, Any]:
    """What a script of this folder prints, run as msaccel runs its workers."""
    result: dict[str, Any] = run_script(command, environment(from_overrides([])))
    return result


def rows(name: str, rounds: int, skip_slow: bool) -> list[Row]:
    """The ways a case is trained; for PyTorch this tries its settings first."""
    case = CASES[name]
    made: list[Row] = []
    if case.tutorial:
        made.append(Row("tutorial", "the tutorials' way", tutorial(name), 1 if case.slow else rounds))
        if case.slow and skip_slow:
            made[0].missing = SKIPPED
    made.append(Row("msaccel", "msaccel", ["msaccel_job.py", name], rounds))
    if case.fallback:
        fallback = ["msaccel_job.py", name, "kernels.use=unfold"]
        made.append(Row("fallback", "msaccel, fallback (unfold)", fallback, rounds))
    wanted = from_overrides([*case.overrides, "precision=bf16"])
    refused = next(kernels.refusals(wanted.kernels.use, True, products(wanted)), "")
    made.append(Row("bf16", "msaccel, bfloat16", ["msaccel_job.py", name, "precision=bf16"], rounds, refused))
    made += pytorch(name, rounds)
    if refused:  # PyTorch trains without, at a sixth of its speed in float32 (MLP)
        made[-1].missing = made[-1].missing or "not run: the processor has no bfloat16"
    made.append(Row("tensorflow", "TensorFlow", ["tf_job.py", name], rounds))
    if importlib.util.find_spec("tensorflow") is None:
        made[-1].missing = MISSING
    return made


def tutorial(name: str) -> list[str]:
    """The command of the tutorials' way."""
    case = CASES[name]
    assert case.tutorial
    if not name.startswith("lenet"):
        return ["tutorial_native.py", name]
    config = from_overrides(case.overrides)
    assert isinstance(config.data, schema.DownloadedDataSettings)
    folder = locate(mnist.SOURCE, config.data.root, config.data.cache)
    return ["tutorial_lenet.py", str(folder), str(case.tutorial[0]), str(config.train.batch_size)]


def pytorch(name: str, rounds: int) -> list[Row]:
    """PyTorch's ways, all with the settings that are the fastest for its eager mode."""
    made = [Row(way, label, ["torch_job.py", name, "--mode", mode], rounds) for way, (label, mode) in PYTORCH.items()]
    if importlib.util.find_spec("torch") is None:
        missing, setting = MISSING, ""
    else:
        try:
            missing, setting = "", measure(["torch_job.py", name, "--trial"])["setting"]
        except subprocess.CalledProcessError as error:
            missing, setting = f"failed with exit code {error.returncode}", ""
    for row in made:
        row.missing = missing
        if setting:
            row.command += ["--setting", setting]
    if setting:
        layout, threads, optimizer = setting.split(",")
        kind = "" if optimizer == "default" else f", {optimizer} optimizer"
        made[0].label += f" ({layout}, {threads} thread{'s' if threads != '1' else ''}{kind})"
        print(f"{name}: {made[0].label} was the fastest in a trial", flush=True)
    return made


def run_round(name: str, every: list[Row], number: int, rounds: int) -> None:
    """Adds a run to each row of a case, the ways in turn."""
    for row in every:
        if row.missing or number >= row.rounds:
            continue
        try:
            row.runs.append(measure(row.command))
            said = f"{row.runs[-1]['samples_per_sec']:,.4g} samples/s"
        except subprocess.CalledProcessError as error:
            said = row.missing = f"failed with exit code {error.returncode}"
        print(f"round {number + 1}/{rounds}: {name}, {row.label}: {said}", flush=True)


def machine() -> str:
    return f"{os.cpu_count()} × {processor()}, Python {platform.python_version()}, MindSpore {version('mindspore')}"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--only", nargs="+", choices=CASES, metavar="CASE", help=", ".join(CASES))
    parser.add_argument("--skip-slow", action="store_true", help="leave out the tutorials' way where a step takes 40 s")
    given = parser.parse_args()
    packages = packages_distributions()  # TensorFlow's is tensorflow or tensorflow-cpu
    peers = {"PyTorch": "torch", "TensorFlow": "tensorflow"}
    present = [f", {label} {version(packages[name][0])}" for label, name in peers.items() if name in packages]
    on = f"msaccel {version('msaccel')} on {machine()}{''.join(present)}"
    (HERE / "results").mkdir(exist_ok=True)
    failed = False
    for name in given.only or CASES:
        every = rows(name, given.rounds, given.skip_slow)
        peaks: list[dict[str, Any]] = []  # the machine's matrix product in each round
        for number in range(given.rounds):
            peaks.append(measure(["peak.py"]))
            run_round(name, every, number, given.rounds)
            text = f"{head(on, peaks)}\n\n{table(every, peaks)}"
            result = {"machine": on, "peaks": peaks, "rows": [vars(row) for row in every]}
            (HERE / "results" / f"{name}.json").write_text(json.dumps(result, indent=2))
            write_into(HERE / "README.md", text, name)
        print(f"\n{CASES[name].title}: {text}\n", flush=True)
        failed |= any(row.missing.startswith("failed") for row in every)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
