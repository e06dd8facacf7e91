"""The jobs of a study, and their runs in MLflow, which are found by their parameters."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache

from msaccel.compare.runs import Record
from msaccel.config.compose import from_overrides
from msaccel.schema import parameters
from msaccel.study.protocol import Study, StudyPart
from msaccel.tracking.status import FAILED, FINISHED

RATE = "optimizer.lr"
# Parameters that do not identify a job: where it reads, writes and runs. Its start decides `device.simulate=auto`.
_IGNORED_KEYS = ("tracking.", "data.cache", "device.simulate", "resume", "checkpoint.", "sweep.")


@dataclass(frozen=True)
class StudyJob:
    """One run of a part.

    Attributes:
        method: its name in the part.
        overrides: the command line of `run.py`, without the store.
    """

    method: str
    rate: float
    seed: int
    overrides: tuple[str, ...]

    def __str__(self) -> str:
        return f"{self.method}, {RATE}={self.rate:g}, seed {self.seed}"

    @property
    def command(self) -> str:
        return shlex.join(["python", "run.py", *self.overrides])


def make_jobs(
    study: Study, part: StudyPart, overrides: Sequence[str], rates: Mapping[str, Iterable[float]], seeds: Iterable[int]
) -> list[StudyJob]:
    """The jobs of a part: each method at its rates, with each seed.

    Args:
        overrides: of every job; they come last and so take precedence.
        rates: by the name of a method.
    """
    seeds = list(seeds)
    # Jobs beside each other get one thread each. This is a parameter, so their runs never count as runs of a job alone.
    threads = ["device.threads=1"] if part.beside > 1 else []
    common = [f"tracking.experiment={study.name}", *part.common, *threads]
    return [
        StudyJob(name, rate, seed, (*common, *part.methods[name], f"{RATE}={rate:g}", f"seed={seed}", *overrides))
        for name, values in rates.items()
        for rate in values
        for seed in seeds
    ]


class RunIndex:
    """Runs by their parameters.

    Args:
        records: of the study's experiment. Of several with equal parameters a finished one counts, then the latest.
    """

    def __init__(self, records: Iterable[Record]) -> None:
        order = sorted(records, key=lambda record: (record.status == FINISHED, record.started))
        self._records = {_identity(record.params): record for record in order}

    def find(self, job: StudyJob) -> Record | None:
        """The run of a job that finished, or failed: a rate at which training diverges was tried, and is the worst."""
        record = self._records.get(_job_identity(job.overrides))
        return record if record and record.status in (FINISHED, FAILED) else None

    def missing(self, jobs: Iterable[StudyJob]) -> list[StudyJob]:
        """The jobs that have no run."""
        return [job for job in jobs if self.find(job) is None]

    def of_jobs(self, jobs: Iterable[StudyJob]) -> dict[StudyJob, Record]:
        """The runs of the jobs that have one."""
        return {job: record for job in jobs if (record := self.find(job))}


@cache  # composing takes a tenth of a second
def _job_identity(overrides: tuple[str, ...]) -> frozenset[tuple[str, str]]:
    return _identity(parameters(from_overrides(overrides)))


def _identity(params: Mapping[str, str]) -> frozenset[tuple[str, str]]:
    return frozenset(item for item in params.items() if item[0] != "accel" and not item[0].startswith(_IGNORED_KEYS))
