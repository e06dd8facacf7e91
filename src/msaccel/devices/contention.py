"""How much of a job's processor time other programs took while it trained, from two readings of /proc/stat.

Others may use the cores that the job's threads leave free; anything beyond that they take from the job. So jobs of a
sweep that share out a machine's cores do not disturb each other, but a build next to a job on all cores does.
"""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from pathlib import Path

from msaccel.kernels.cores import ROOT

_BUSY = (0, 1, 2, 5, 6, 7)  # user, nice, system, irq, softirq, steal; the others are idle, or counted in these


@dataclass(frozen=True)
class Reading:
    """Seconds of wall time, of processor time of all programs on this process's cores, and of this process."""

    clock: float
    every: float
    own: float


def read(root: Path = ROOT) -> Reading:
    """The counts since the machine and the process started; `every` is 0 where the machine does not tell."""
    own_cores = {f"cpu{core}" for core in cores()}
    try:
        lines = [line.split() for line in (root / "proc" / "stat").read_text().splitlines()]
    except OSError:
        lines = []
    ticks = sum(int(line[1 + place]) for line in lines if line and line[0] in own_cores for place in _BUSY)
    return Reading(time.perf_counter(), ticks / os.sysconf("SC_CLK_TCK"), time.process_time())


def cores() -> set[int]:
    return os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else set(range(os.cpu_count() or 1))


def contended(since: Reading, now: Reading, own: float, threads: int) -> float | None:
    """The share of the processor time of a job's threads here that others took between two readings; None if unknown.

    Args:
        own: seconds that all processes of the job here have used.
        threads: how many these processes have.
    """
    every = now.every - since.every
    return share(every - own, now.clock - since.clock, len(cores()), threads) if every > 0 else None


def share(others: float, seconds: float, cores: int, threads: int) -> float:
    """What others used beyond the free cores, divided by what the threads may use; 0 to 1."""
    used = min(threads, cores)
    return min(1.0, max(0.0, others - (cores - used) * seconds) / (used * seconds))
