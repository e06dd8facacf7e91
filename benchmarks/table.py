"""The table of a benchmark: medians over processes, and ratios of medians."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime, timezone
from typing import Any

from flops import TRAINING

COLUMNS = (
    "way", "samples/s, median (min to max)", "bare step, ms", "÷ PyTorch", "÷ tutorials' way",
    "first step, s (compile)", "peak MB", "tracking", "utilisation", "n",
)  # fmt: skip
NOTHING = "–"


@dataclass
class Row:
    """One way to train a case.

    Attributes:
        way: `tutorial`, `msaccel`, `fallback`, `bf16`, `pytorch`, `compiled`, `autocast` or `tensorflow`.
        label: as in the table.
        command: a script of this folder and its arguments.
        rounds: in how many it runs.
        missing: why there are no numbers, or empty.
        runs: what the processes printed.
    """

    way: str
    label: str
    command: list[str]
    rounds: int
    missing: str = ""
    runs: list[dict[str, float]] = field(default_factory=list)


def head(machine: str, peaks: Sequence[dict[str, Any]]) -> str:
    """What was run, when and on what; each round has its peak."""
    fastest, rounds = max(peaks, key=lambda peak: peak["gflops"]), len(peaks)
    return (
        f"{datetime.now(timezone.utc):%Y-%m-%d}, {rounds} round{'s' if rounds > 1 else ''} in turn, {machine}. Matrix "
        f"product (float32, 2048³, {fastest['threads']} threads, {fastest['by']}): {fastest['gflops']:,.0f} GFLOP/s, "
        "of which utilisation is the share."
    )


def median(runs: Sequence[dict[str, float]], key: str) -> float | None:
    """Over the runs that measured it; None if none did."""
    values = [run[key] for run in runs if key in run]
    return statistics.median(values) if values else None


def table(rows: Sequence[Row], peaks: Sequence[dict[str, Any]]) -> str:
    lines = [f"| {' | '.join(COLUMNS)} |", "|---" * len(COLUMNS) + "|"]
    speeds = {row.way: median(row.runs, "samples_per_sec") for row in rows}
    peak = max(one["gflops"] for one in peaks)
    flops = next((run["forward_flops"] for row in rows for run in row.runs if "forward_flops" in run), None)
    for row in rows:
        cells = [row.label]
        if row.runs:
            speed = speeds[row.way]
            assert speed is not None
            cells += [spread([run["samples_per_sec"] for run in row.runs]), number(median(row.runs, "bare_ms"))]
            for other in ("pytorch", "tutorial"):
                reference = speeds.get(other)
                cells.append(f"{speed / reference:.2f}" if reference and other != row.way else NOTHING)
            share = median(row.runs, "tracking_share")
            used = TRAINING * flops * speed / peak / 1e9 if flops else None
            cells += [first_step(row.runs), number(median(row.runs, "peak_mb")), percent(share), percent(used)]
        else:
            cells += [row.missing, *[NOTHING] * (len(COLUMNS) - 3)]
        lines.append(f"| {' | '.join(cells)} | {len(row.runs)} |")
    return "\n".join(lines)


def spread(values: Sequence[float]) -> str:
    return f"{number(statistics.median(values))} ({number(min(values))} to {number(max(values))})"


def first_step(runs: Sequence[dict[str, float]]) -> str:
    compiling = median(runs, "compile_s")
    return f"{number(median(runs, 'first_s'))}{f' ({number(compiling)})' if compiling is not None else ''}"


def percent(share: float | None) -> str:
    return NOTHING if share is None else f"{share:.1%}"


def number(value: float | None) -> str:
    """Three digits where it is small, whole where it is large."""
    return NOTHING if value is None else f"{value:,.0f}" if value >= 100 else f"{value:.3g}"
