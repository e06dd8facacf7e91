"""What the READMEs say of other people's networks: `python benchmarks/zoo_summary.py` computes it from `zoo.md`."""

from __future__ import annotations

import re
import statistics
import textwrap
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from msaccel.compare.render.card import write_into

HERE = Path(__file__).parent
READMES = (HERE.parent / "README.md", HERE.parent / "packaging" / "kernels" / "README.md")
MOST = 0.9  # of a step: nine tenths


class Row(NamedTuple):
    """A network in `zoo.md`.

    Attributes:
        reference: the share of MindSpore's step in oneDNN's reference kernels.
        times: as fast as MindSpore's step.
        ours, peers: milliseconds of a step, median, least and most of the rounds; none of PyTorch's without it.
        steps: as many a second as PyTorch; NaN without it.
    """

    name: str
    reference: float
    times: float
    ours: list[float]
    peers: list[float]
    steps: float


def read(table: str) -> list[Row]:
    """The rows of `zoo.md`."""
    rows = []
    for line in table.splitlines():
        if not (line.startswith("| ") and "%" in line):
            continue
        name, _, share, ours, times, peers, steps, *_ = (cell.strip() for cell in line.strip("|").split("|"))
        reference, ratio = float(share.rstrip("%")) / 100, float(steps or "nan")
        rows.append(Row(name, reference, float(times), _numbers(ours), _numbers(peers), ratio))
    return rows


def _numbers(cell: str) -> list[float]:
    return [float(number) for number in re.findall(r"[\d.]+", cell)]


def summary(table: str) -> str:
    """The paragraph for the READMEs, in lines of at most 120 characters."""
    rows = read(table)
    slow = [row for row in rows if row.reference >= MOST]
    others = [row for row in rows if row.reference < MOST]
    compared = [row for row in rows if row.peers]
    faster = [row.name for row in compared if max(row.ours) < min(row.peers)]
    slower = [row.name for row in compared if min(row.ours) > max(row.peers)]
    text = (
        f"With `accelerate` MindSpore's training step becomes {_spread([row.times for row in rows])} over {len(rows)} "
        f"networks of MindCV: {_spread([row.times for row in slow])} over the {len(slow)} in which oneDNN's reference "
        f"kernels take nine tenths of it or more ({_named([row.name for row in slow])}), and "
        f"{_spread([row.times for row in others])} over the others. It is then "
        f"{_spread([row.steps for row in compared], 2)} as that of PyTorch eager over the {len(compared)} "
        f"that torchvision has; by more than the rounds vary {_named(faster)} are faster than there, and "
        f"{'❗ ' * bool(slower)}{_named(slower)} slower."
    )
    return textwrap.fill(text, 120, break_long_words=False, break_on_hyphens=False)


def _spread(values: Sequence[float], digits: int | None = None) -> str:
    """Least to most times as fast, and the median; without `digits` with a decimal below ten."""

    def form(value: float) -> str:
        return f"{value:.{digits}f}" if digits else f"{value:.{int(value < 9.95)}f}"

    return f"{form(min(values))} to {form(max(values))} times as fast (median {form(statistics.median(values))})"


def _named(names: Sequence[str]) -> str:
    *first, last = names or ["none"]
    return f"{', '.join(first)} and {last}" if first else last


def write() -> None:
    text = summary((HERE / "zoo.md").read_text())
    for path in READMES:
        write_into(path, text, "zoo")


if __name__ == "__main__":
    write()
