"""The jobs of a study, and which of them MLflow has already: a run is found again by its parameters."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache

from msaccel.compare.runs import Record
from msaccel.config.compose import from_overrides
from msaccel.study.protocol import Part, Study
from msaccel.tracking.start import parameters
from msaccel.tracking.status import FAILED, FINISHED

RATE = "optimizer.lr"
# Where a job reads, writes and runs; `device.simulate=auto` is decided as it starts.
_NOT_ASKED = ("tracking.", "data.cache", "device.simulate", "resume", "checkpoint.", "sweep.")


@dataclass(frozen=True)
class Job:
    """One run of a part.

    Attributes:
        method: its name in the part.
        overrides: the command line of `run.py`, without the store.
    """

    method: str
    rate: float
    seed: int
    overrides: tuple[str, ...]

    @property
    def command(self) -> str:
        return shlex.join(["python", "run.py", *self.overrides])


def make(
    study: Study, part: Part, more: Sequence[str], rates: Mapping[str, Iterable[float]], seeds: Iterable[int]
) -> list[Job]:
    """The jobs of a part: each method at its rates, with each seed.

    Args:
        more: overrides of every job that come last, so they win.
        rates: by the name of a method.
    """
    seeds = list(seeds)
    # One thread for each of several jobs: threads are a parameter, so a run beside others is never taken for one alone.
    threads = ["device.threads=1"] if part.beside > 1 else []
    common = [f"tracking.experiment={study.name}", *part.common, *threads]
    return [
        Job(name, rate, seed, (*common, *part.methods[name], f"{RATE}={rate:g}", f"seed={seed}", *more))
        for name, values in rates.items()
        for rate in values
        for seed in seeds
    ]


class Found:
    """Runs by their parameters.

    Args:
        records: of the study's experiment; of several with the same parameters a finished one, then the latest.
    """

    def __init__(self, records: Iterable[Record]) -> None:
        order = sorted(records, key=lambda record: (record.status == FINISHED, record.started))
        self._records = {_asked(record.params): record for record in order}

    def __call__(self, job: Job) -> Record | None:
        """The run of a job, if it finished, or failed: a rate at which training breaks down was tried, and lost."""
        record = self._records.get(_wanted(job.overrides))
        return record if record and record.status in (FINISHED, FAILED) else None

    def missing(self, jobs: Iterable[Job]) -> list[Job]:
        return [job for job in jobs if self(job) is None]

    def of(self, jobs: Iterable[Job]) -> dict[Job, Record]:
        """The runs of those jobs that have one."""
        return {job: record for job in jobs if (record := self(job))}


@cache  # composing takes a tenth of a second
def _wanted(overrides: tuple[str, ...]) -> frozenset[tuple[str, str]]:
    return _asked(parameters(from_overrides(overrides)))


def _asked(params: Mapping[str, str]) -> frozenset[tuple[str, str]]:
    return frozenset(item for item in params.items() if item[0] != "accel" and not item[0].startswith(_NOT_ASKED))
