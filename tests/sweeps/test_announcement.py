"""What is said before each job of a sweep: its number, its own settings, and about how long the rest takes."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path

import pytest

from msaccel.launch.job import Result, Task
from msaccel.launch.job_folder import JobFolder
from msaccel.sweeps.announcement import announcement, place, seconds_left
from msaccel.sweeps.folder import FILE, SweepCommand, SweepFolder, SweepRecord
from msaccel.tracking.status import FINISHED, REFUSED

TYPED = [
    "--config-dir=/mine",
    "--config-name=own",
    "hydra/launcher=joblib",
    "accel=none,accum",
    "optimizer.lr=0.1,0.5",
    "model=mlp",
    "tracking.uri=sqlite:////a",
]


@pytest.fixture
def sweep(tmp_path: Path) -> SweepFolder:
    record = SweepRecord(SweepCommand([], {}, ""), TYPED, "2026-11-22", jobs=9)
    JobFolder(tmp_path).write(FILE, asdict(record))
    return SweepFolder(tmp_path)


@pytest.fixture
def job(sweep: SweepFolder) -> Callable[..., JobFolder]:
    """The folder of a job that began at 1,000 s and took so many, or has not ended."""

    def made(number: int, seconds: float | None = None, status: str = FINISHED) -> JobFolder:
        folder = JobFolder(sweep.path / str(number))
        folder.path.mkdir()
        if status != REFUSED:
            folder.assign(Task("none-cpu-s0"))
            os.utime(folder.path / "job.json", (1000, 1000))
        if seconds is not None:
            folder.write("rank-0.json", {})
            os.utime(folder.path / "rank-0.json", (1000 + seconds, 1000 + seconds))
        if seconds is not None or status == REFUSED:
            folder.finish(Result("none-cpu-s0", status))
        return folder

    return made


def test_the_first_job_has_no_time_yet(sweep: SweepFolder) -> None:
    own = ["model=mlp", r"tracking.uri=sqlite\:////a", "accel=accum", "optimizer.lr=0.5", "sweep.resume=true"]
    assert announcement(sweep, 2, "accum", own) == "[3/9] accum optimizer.lr=0.5"


def test_the_others_take_the_mean_of_those_that_have_ended(sweep: SweepFolder, job: Callable) -> None:
    job(0, 40.0), job(1, 60.0), job(2)
    assert announcement(sweep, 2, "accum", ["optimizer.lr=0.5"]) == "[3/9] accum optimizer.lr=0.5 … about 6 min left"
    assert seconds_left(sweep, 9) == 7 * 50.0


def test_jobs_side_by_side_take_less_together(sweep: SweepFolder, job: Callable) -> None:
    job(0, 50.0)
    locks = [job(number).lock("launcher") for number in (1, 2)]
    job(3)  # killed in an earlier start of the sweep
    assert seconds_left(sweep, 9) == 8 * 50.0 / 2
    for lock in locks:
        lock.release()


def test_a_refused_job_takes_no_time_and_is_done(sweep: SweepFolder, job: Callable) -> None:
    job(0, status=REFUSED)
    assert seconds_left(sweep, 9) is None
    job(1, 50.0)
    assert seconds_left(sweep, 9) == 7 * 50.0


def test_a_search_names_what_the_sweeper_chose(sweep: SweepFolder) -> None:
    assert announcement(sweep, 0, "none", ["model=mlp", "train.epochs=3"]) == "[1/9] none train.epochs=3"


def test_a_sweep_of_an_earlier_version_has_numbers_alone(tmp_path: Path) -> None:
    assert place(SweepFolder(tmp_path), 2) == "[3]"
    assert announcement(SweepFolder(tmp_path), 2, "none", ["seed=1"]) == "[3] none seed=1"
