"""PCA of snapshots against scikit-learn's, in turn, in one process and on equally many threads.

`python benchmarks/pca.py [--size M] [--rounds N] [--threads T]`. The snapshots are a random walk. Ours reads them from
files the system has in its cache; scikit-learn's randomized solver is given the matrix in memory, float32, for free.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from msaccel.accel.dimreduce import snapshots
from msaccel.accel.dimreduce.layout import Layout, spans
from msaccel.accel.dimreduce.pca import principal

SNAPSHOTS, COMPONENTS = 40, 32


def walk(folder: Path, size: int) -> NDArray[np.float32]:
    """The snapshots (N, M), which it also writes to files."""
    layout, draw = Layout(("weight",), ((size,),)), np.random.default_rng(0)
    rows = np.empty((SNAPSHOTS, size), np.float32)
    for update in range(SNAPSHOTS):
        draw.standard_normal(dtype=np.float32, out=rows[update])
        if update:
            rows[update] += rows[update - 1]
        snapshots.write(folder, layout, [rows[update]], update, SNAPSHOTS)
    return rows


def memory(field: str) -> float:
    """VmRSS, the memory of this process, or VmHWM, its peak, in MB."""
    status = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in status if line.startswith(field)) / 1024


def measure(work: Callable[[], Any]) -> tuple[float, float, Any]:
    """Seconds, peak MB above what was in use before, and the result."""
    Path("/proc/self/clear_refs").write_text("5")  # forget the peak so far
    before, started = memory("VmRSS"), time.perf_counter()
    result = work()
    return time.perf_counter() - started, memory("VmHWM") - before, result


def cases(folder: Path, rows: NDArray[np.float32]) -> dict[str, Callable[[], Any]]:
    """What is timed: both return P (k, M)."""

    layout = Layout(("weight",), ((rows.shape[1],),))

    def ours() -> Any:
        return principal(snapshots.find(folder, layout), COMPONENTS).matrix

    try:
        from sklearn.decomposition import PCA
    except ImportError:
        print("scikit-learn is not installed, so msaccel is timed alone.")
        return {"msaccel": ours}

    def theirs() -> Any:
        return PCA(n_components=COMPONENTS, svd_solver="randomized", random_state=0).fit(rows).components_

    return {"msaccel": ours, "scikit-learn": theirs}


def error(matrix: NDArray[np.float32]) -> float:
    """The largest entry of P Pᵀ − 1."""
    blocks = (matrix[:, span].astype(np.float64) for span in spans(matrix.shape[1], 2**16))
    return float(np.abs(sum(block @ block.T for block in blocks) - np.eye(len(matrix))).max())


def threads(count: int) -> AbstractContextManager[Any]:
    try:
        from threadpoolctl import threadpool_limits
    except ImportError:
        print("threadpoolctl is not installed, so the number of threads is the environment's.")
        return nullcontext()
    return threadpool_limits(count)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--size", type=int, default=5_000_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=2)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, threads(given.threads):
        work = cases(Path(folder), walk(Path(folder), given.size))
        taken: dict[str, list[tuple[float, float]]] = {name: [] for name in work}
        for _ in range(given.rounds):
            for name, run in work.items():
                seconds, peak, matrix = measure(run)
                taken[name].append((seconds, peak))
                off = error(matrix)
                print(f"{name}: {seconds:.2f} s, peak {peak:.0f} MB, rows orthonormal to {off:.0e}", flush=True)
                del matrix
    print(f"{SNAPSHOTS} snapshots of {given.size:,} weights, {COMPONENTS} components, {given.threads} threads:")
    for name, runs in taken.items():
        seconds, peak = statistics.median(run[0] for run in runs), max(run[1] for run in runs)
        own = COMPONENTS * given.size * 4 / 2**20
        print(f"  {name}: median {seconds:.2f} s, peak {peak:.0f} MB of which P is {own:.0f}")


if __name__ == "__main__":
    main()
