"""What other programs took of a job's processor time."""

from __future__ import annotations

from pathlib import Path

import pytest

from msaccel.devices.contention import cores, read, share


@pytest.mark.parametrize(
    ("others", "number", "threads", "taken"),
    [
        (0.0, 2, 2, 0.0),
        (5.0, 2, 2, 0.25),  # of 20 seconds of processor time
        (10.0, 2, 1, 0.0),  # they used the core that the job leaves free
        (14.0, 2, 1, 0.4),
        (8.0, 2, 4, 0.4),  # threads beyond the cores have no time of their own
        (-0.1, 2, 2, 0.0),  # two clocks do not agree to the tick
        (99.0, 2, 2, 1.0),
    ],
)
def test_only_what_is_beyond_the_free_cores_counts(others: float, number: int, threads: int, taken: float) -> None:
    assert share(others, 10.0, number, threads) == pytest.approx(taken)


def test_own_cores_alone_are_read(tmp_path: Path) -> None:
    (tmp_path / "proc").mkdir()
    first = min(cores())
    lines = [
        "cpu 9 9 9 9 9 9 9 9 9 9",
        f"cpu{first} 100 200 300 7000 7000 10 20 70 5000 5000",
        "cpu9999 9 9 9",
        "intr 1",
    ]
    (tmp_path / "proc" / "stat").write_text("\n".join(lines))
    assert read(tmp_path).every == pytest.approx(7.0)
    assert read(tmp_path / "nowhere").every == 0.0
