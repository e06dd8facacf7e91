"""What is printed before each job of a sweep: its number, what distinguishes it from the others, and the time left."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean

from hydra.core.override_parser.overrides_parser import OverridesParser

from msaccel.launch.job_folder import JobFolder
from msaccel.sweeps.folder import SweepFolder
from msaccel.tracking.progress_bar import span


def place(sweep: SweepFolder, number: int) -> str:
    """`[3/9]`: the number of a job, counted from 0, among those of its sweep."""
    record = sweep.record()
    return f"[{number + 1}/{record.jobs}]" if record and record.jobs else f"[{number + 1}]"


def announcement(sweep: SweepFolder, number: int, method: str, overrides: Sequence[str]) -> str:
    """`[3/9] accum optimizer.lr=0.5 … about 4 min left`, without a time before a job has finished.

    Args:
        overrides: the job's; those that are the same in all jobs are left out.
    """
    record = sweep.record()
    words = [word for word in record.typed if not word.startswith("--")] if record else []
    typed = OverridesParser.create().parse_overrides(words)
    common = {"accel", "sweep.resume", *(one.get_key_element() for one in typed if not one.is_sweep_override())}
    own = [word for word in overrides if word.partition("=")[0] not in common]
    left = seconds_left(sweep, record.jobs) if record and record.jobs else None
    words = [place(sweep, number), method, *own, *([] if left is None else [f"… about {span(left)} left"])]
    return " ".join(words)


def seconds_left(sweep: SweepFolder, jobs: int) -> float | None:
    """Estimated seconds until all jobs have ended, from the mean time of those that have and the number that run at a
    time now; None before one has ended."""
    begun = sweep.jobs()
    ended = [folder for folder in begun if folder.is_ended()]
    times = [seconds for folder in ended if (seconds := _seconds(folder)) is not None]
    at_once = sum(folder.is_held("launcher") for folder in begun if not folder.is_ended())
    return fmean(times) * (jobs - len(ended)) / max(1, at_once) if times else None


def _seconds(folder: JobFolder) -> float | None:
    """From the start of a job's processes to the end of its first rank; None if there was none here."""
    try:
        begin, end = ((folder.path / name).stat().st_mtime for name in ("job.json", "rank-0.json"))
    except FileNotFoundError:
        return None
    return max(0.0, end - begin)
