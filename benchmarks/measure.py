"""Measuring memory and time, the same in every measured process."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any


def peak_mb() -> float:
    """Peak resident memory of this program so far, in MB (10⁶ bytes).

    `getrusage` would also count the process that was replaced by this program.
    """
    line = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM"))
    return int(line.split()[1]) * 1024 / 1e6


def milliseconds(step: Callable[[], Any], count: int, settle: Callable[[Any], Any]) -> float:
    """Milliseconds per call of `step` in a loop that ends when `settle` has waited for the last result."""
    for _ in range(max(1, count // 10)):
        settle(step())
    started = time.perf_counter()
    for _ in range(count - 1):
        step()
    settle(step())
    return (time.perf_counter() - started) / count * 1e3
