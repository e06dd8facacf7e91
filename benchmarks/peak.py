"""Peak GFLOP/s of this machine, the reference for utilisation: a 2048 × 2048 matrix product in float32.

Measured with NumPy and, if installed, PyTorch, with as many threads as the jobs have; the faster one counts.
"""

from __future__ import annotations

import importlib.util
import json
import os
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

SIDE, REPEATS = 2048, 10


def products() -> Iterator[tuple[str, Callable[[], Any]]]:
    left, right = np.random.default_rng(0).standard_normal((2, SIDE, SIDE), np.float32)
    out = np.empty_like(left)
    yield "NumPy", lambda: np.matmul(left, right, out=out)
    if importlib.util.find_spec("torch"):
        import torch

        torch.set_num_threads(int(os.environ["OMP_NUM_THREADS"]))
        a, b, c = map(torch.from_numpy, (left, right, out))
        yield "PyTorch", lambda: torch.matmul(a, b, out=c)


def best(product: Callable[[], Any]) -> float:
    """GFLOP/s of the fastest of REPEATS products."""
    taken = []
    for _ in range(REPEATS):
        started = time.perf_counter()
        product()
        taken.append(time.perf_counter() - started)
    return 2 * SIDE**3 / min(taken) / 1e9


if __name__ == "__main__":
    name, gflops = max(((name, best(product)) for name, product in products()), key=lambda found: found[1])
    print(json.dumps({"by": name, "gflops": gflops, "threads": int(os.environ["OMP_NUM_THREADS"])}))
