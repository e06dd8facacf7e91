"""What a job costs beside its training: processor seconds of jobs that make two updates and nothing more.

`python benchmarks/overhead.py [--rounds N] [--jobs N]` measures a job alone, a sweep of one job with its report, and a
sweep of many. It counts user and system time of all processes, since wall time depends on what else runs. Prints a
table and writes it to `benchmarks/overhead.md`.
"""

from __future__ import annotations

import argparse
import ctypes
import os
import resource
import subprocess
import sys
import tempfile
from contextlib import suppress
from pathlib import Path

from bench import machine
from measure import spread

HERE = Path(__file__).parent
JOB = ("data=synthetic", "model=mlp", "train.epochs=1", "train.max_updates=2")
_PR_SET_CHILD_SUBREAPER = 36  # of Linux: processes whose parent has ended become children of this one


def seconds(folder: str, *overrides: str) -> float:
    """Processor seconds of a call of `run.py` and of all processes that it starts."""
    before = used()
    store = [f"tracking.uri=sqlite:///{folder}/mlflow.db", f"tracking.artifacts={folder}/artifacts"]
    jobs = [f"hydra.{kind}.dir={folder}/jobs/${{now:%H-%M-%S-%f}}" for kind in ("run", "sweep")]
    command = [sys.executable, str(HERE.parent / "run.py"), *store, *jobs, *JOB, *overrides]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    with suppress(ChildProcessError):
        while True:
            os.wait()  # what has outlived the launcher
    return used() - before


def used() -> float:
    """Processor seconds of all child processes that have ended."""
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return children.ru_utime + children.ru_stime


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--jobs", type=int, default=100, help="of the sweep")
    given = parser.parse_args()
    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1)
    rounds = []
    with tempfile.TemporaryDirectory() as folder:
        seconds(folder)  # makes the store
        for _ in range(given.rounds):
            first = seconds(folder, "-m", "seed=0")
            sweep = seconds(folder, "-m", f"seed=range({given.jobs})")
            alone = seconds(folder)
            rounds.append((alone, given.jobs * alone, first, sweep, (sweep - first) / (given.jobs - 1)))
    what = (
        "a job alone",
        f"{given.jobs} jobs, each alone (computed)",
        "the first job of a sweep, and its report",
        f"{given.jobs} jobs of a sweep, and its report",
        "each job of the sweep after its first one",
    )
    rows = [
        f"| {name} | {spread(values, '.1f')} |" for name, values in zip(what, zip(*rounds, strict=True), strict=True)
    ]
    head = f"`python benchmarks/overhead.py`, {given.rounds} rounds in turn, `{' '.join(JOB)}`, on {machine()}:"
    text = "\n".join([head, "", "| what | processor seconds, median (min to max) |", "|---|---|", *rows, ""])
    print(text)
    (HERE / "overhead.md").write_text(text)


if __name__ == "__main__":
    main()
