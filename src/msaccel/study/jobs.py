"""The jobs of a study, and their runs in MLflow, which are found by their parameters."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache

from msaccel.accel import label
from msaccel.compare.groups import conditions, unlike
from msaccel.compare.method_runs import diverged
from msaccel.compare.runs import Record
from msaccel.compare.tuning import RATE
from msaccel.config.compose import from_overrides
from msaccel.errors import ConfigError
from msaccel.schema import CLASSES, OPERATIONAL, parameters
from msaccel.study.protocol import Study, StudyPart
from msaccel.tracking.status import FINISHED, IN_TURNS

SEED = "seed"
_IGNORED_KEYS = (*OPERATIONAL, "device.simulate")  # parameters that do not identify a job; its start decides `auto`


@dataclass(frozen=True)
class StudyJob:
    """One run of a part.

    Attributes:
        arm: its name in the part.
        settings: overrides that all jobs of the arm share.
        in_turns: whether its speed alone is measured, in turns with the other arms.
    """

    arm: str
    rate: float
    seed: int
    settings: tuple[str, ...]
    in_turns: bool = False

    def __str__(self) -> str:
        return f"{self.arm}, {RATE}={self.rate:g}, seed {self.seed}"

    @property
    def overrides(self) -> tuple[str, ...]:
        """The command line of `run.py`, without the store."""
        return (*self.settings, f"{RATE}={self.rate:.12g}", f"{SEED}={self.seed}")


def make_jobs(
    study: Study, part: StudyPart, overrides: Sequence[str], rates: Mapping[str, Iterable[float]], seeds: Iterable[int]
) -> list[StudyJob]:
    """The jobs of a part, seed by seed: for each seed all arms in turn, each at its rates.

    Args:
        overrides: of every job; they take precedence over the study's.
        rates: by the name of an arm.
    """
    # Concurrent jobs get one thread each. This is a parameter, so their runs never count as those of a job run alone.
    threads = ["device.threads=1"] if part.beside > 1 else []
    common = [f"tracking.experiment={study.name}", *part.common, *threads]
    settings = {name: (*common, *part.arms[name], *overrides) for name in rates}
    at = [(name, rate) for name, values in rates.items() for rate in values]
    return [StudyJob(name, rate, seed, settings[name], part.speed) for seed in seeds for name, rate in at]


def check_conditions(study: Study, overrides: Sequence[str]) -> None:
    """Checks that the two arms of each hypothesis differ only in what a comparison may judge.

    Raises:
        ConfigError: they do not, so training them would end without a verdict.
    """
    for key, part in study.parts.items():
        if not part.hypothesis:
            continue
        arms = (part.hypothesis.method, part.hypothesis.baseline)
        jobs = make_jobs(study, part, overrides, {arm: part.grids[arm][:1] for arm in arms}, [part.first_seed])
        of_method, of_baseline = (
            conditions(Record("", "", "", FINISHED, 0, None, logged_by(job), {}, {}), given="declared") for job in jobs
        )
        if differing := unlike(of_method, of_baseline):
            _, name, value, other = differing[0]
            raise ConfigError(
                f"study {study.name}, part {key}: {name} is {value or 'not set'} for {arms[0]} and "
                f"{other or 'not set'} for {arms[1]}, and runs under other conditions get no verdict; write the same "
                f"{name} for both."
            )


class RunIndex:
    """Runs by their parameters.

    Args:
        records: of the study's experiment. Among several with equal parameters a finished one counts, then a
            diverged one, then the latest.
    """

    def __init__(self, records: Iterable[Record]) -> None:
        order = sorted(records, key=lambda record: (record.status == FINISHED, diverged(record), record.started))
        self._records = dict[object, Record]()
        for record in order:
            # A job does not know its classes where the data say how many there are; others differ by them.
            unread = {key: value for key, value in record.params.items() if key != CLASSES}
            for params in (record.params, unread):
                self._records[_identity(params, IN_TURNS in record.tags)] = record
        self._found = dict[StudyJob, Record | None]()

    @property
    def any_finished(self) -> bool:
        return any(record.status == FINISHED for record in self._records.values())

    def find(self, job: StudyJob) -> Record | None:
        """The run of a job that finished, or diverged: its rate was tried, and is the worst. Crashes do not count.

        Its number of classes is as planned, also if the run has logged what it read: published runs do not say it.
        """
        if job not in self._found:
            planned = logged_by(job)
            record = self._records.get(_identity(planned, job.in_turns))
            if record and (record.status == FINISHED or diverged(record)):
                self._found[job] = replace(record, params=record.params | {CLASSES: planned[CLASSES]})
            else:
                self._found[job] = None
        return self._found[job]

    def missing(self, jobs: Iterable[StudyJob]) -> list[StudyJob]:
        """The jobs that have no run."""
        return [job for job in jobs if self.find(job) is None]

    def of_jobs(self, jobs: Iterable[StudyJob]) -> dict[StudyJob, Record]:
        """The runs of the jobs that have one."""
        return {job: record for job in jobs if (record := self.find(job))}


def logged_by(job: StudyJob) -> dict[str, str]:
    """The parameters of the job's run."""
    return {**parameters_of(job.settings), RATE: str(float(f"{job.rate:.12g}")), SEED: str(job.seed)}


@cache  # composing takes a tenth of a second
def parameters_of(settings: tuple[str, ...]) -> dict[str, str]:
    """What a run with these overrides logs."""
    config = from_overrides(settings)
    return {**parameters(config), "accel": label(config.accel)}


def _identity(params: Mapping[str, str], in_turns: bool) -> tuple[frozenset[tuple[str, str]], bool]:
    known = (item for item in params.items() if item[0] != "accel" and not item[0].startswith(_IGNORED_KEYS))
    return frozenset(item for item in known if item != (CLASSES, "null")), in_turns
