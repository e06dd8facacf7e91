"""How many cores this process may use: its affinity, or less where control groups limit their time, as containers do.

Does not import MindSpore.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

ROOT = Path("/")


def cores(root: Path = ROOT) -> float:
    """Cores this process may use: its affinity, or less where a control group limits their time."""
    own = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return min([float(own), *_quotas(root)])


def groups(root: Path, controller: str) -> Iterator[Path]:
    """The folders of this process's control group and of those above it; the unified hierarchy has no name."""
    for line in read(root / "proc" / "self" / "cgroup").splitlines():
        _, controllers, path = line.split(":", 2)
        if controller in controllers.split(","):
            top = root / "sys" / "fs" / "cgroup" / controller
            inner = Path(path.lstrip("/"))
            yield from (top / folder for folder in (inner, *inner.parents))


def read(path: Path) -> str:
    """The content of a file of the system; empty if there is none."""
    try:
        return path.read_text().strip()
    except OSError:
        return ""


def _quotas(root: Path) -> Iterator[float]:
    for folder in groups(root, ""):
        quota, _, period = read(folder / "cpu.max").partition(" ")
        if quota.isdigit():  # or max
            yield int(quota) / int(period)
    for folder in groups(root, "cpu"):
        quota, period = read(folder / "cpu.cfs_quota_us"), read(folder / "cpu.cfs_period_us")
        if quota.isdigit() and period.isdigit():  # or -1
            yield int(quota) / int(period)
