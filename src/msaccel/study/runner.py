"""Trains the missing jobs of a study: trials of every rate, then all seeds of the chosen rates and their neighbours.

A job with a run in MLflow is not trained again, so an interrupted study goes on where it stopped. To train a job again,
delete its run in MLflow.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count

from mlflow import MlflowClient

from msaccel.compare.groups import group
from msaccel.compare.runs import Record
from msaccel.compare.runs import find as find_runs
from msaccel.compare.tuning import tune
from msaccel.launch.job_folder import Result
from msaccel.study.jobs import RATE, RunIndex, StudyJob, make_jobs
from msaccel.study.launchers import Launchers, Report
from msaccel.study.protocol import Study, StudyPart
from msaccel.tracking.status import FINISHED

_log = logging.getLogger(__name__)


@dataclass
class StudyRunner:
    """One study in one store.

    Attributes:
        overrides: of every job, after those of the study.
        runs: the study's runs in the store; read again after each phase.
    """

    study: Study
    client: MlflowClient
    uri: str
    overrides: Sequence[str] = ()
    runs: RunIndex = field(init=False)

    def __post_init__(self) -> None:
        self.refresh()

    def refresh(self) -> None:
        """Reads the runs from the store."""
        self.runs = RunIndex(find_runs(self.client, self.study.name))

    def trials(self, part: StudyPart) -> list[StudyJob]:
        """Every method at every rate, with the first seeds."""
        rates = dict.fromkeys(part.methods, part.rates)
        return make_jobs(self.study, part, self.overrides, rates, range(part.first_seeds))

    def seeds(self, part: StudyPart) -> list[StudyJob]:
        """Every method at its chosen rate and the neighbouring rates, with all seeds."""
        rates = {name: neighbours(rate, part) for name, rate in self.chosen_rates(part).items()}
        return make_jobs(self.study, part, self.overrides, rates, range(part.seeds))

    def jobs(self, part: StudyPart) -> list[StudyJob]:
        """All jobs of a part; only its trials while one of them is missing, since the other jobs depend on them."""
        trials = self.trials(part)
        if self.runs.missing(trials):
            return trials
        return list(dict.fromkeys([*trials, *self.seeds(part)]))

    def method_names(self, part: StudyPart) -> dict[str, str]:
        """The protocol's name of the method of each run of a part, by run id."""
        return {run.run_id: job.method for job, run in self.runs.of_jobs(self.jobs(part)).items()}

    def chosen_rates(self, part: StudyPart) -> dict[str, float]:
        """The best rate of each method by validation accuracy; a method that failed at every rate has none."""
        if len(part.rates) == 1:
            return dict.fromkeys(part.methods, part.rates[0])
        return best_rates(self.runs.of_jobs(self.trials(part)))

    def run(self) -> None:
        """Trains all missing jobs of every part.

        Raises:
            ConfigError: a job was refused.
            KeyboardInterrupt: a job was interrupted; finished runs are kept.
        """
        with Launchers(self.uri, f"study-{self.study.name}") as launchers:
            for key, part in self.study.parts.items():
                for phase, jobs in (("rates", self.trials), ("seeds", self.seeds)):
                    missing = self.runs.missing(jobs(part))
                    if missing:
                        many = f"{len(missing)} {'job' if len(missing) == 1 else 'jobs'}, {part.beside} at a time"
                        _log.info("%s, %s, %s: %s", self.study.name, key, phase, many)
                        launchers.train(missing, part.beside, _report(len(missing)))
                        self.refresh()

    def plan(self) -> tuple[list[str], float]:
        """The commands of the missing jobs, with comments, and an estimate of their minutes."""
        lines, total = list[str](), 0.0
        for key, part in self.study.parts.items():
            trials = self.runs.missing(self.trials(part))
            jobs = trials or self.runs.missing(self.seeds(part))
            commands, count = [job.command for job in jobs], len(jobs)
            if trials:
                most = min(len(part.rates), 2 * part.neighbours + 1)
                later = len(part.methods) * most * (part.seeds - part.first_seeds)
                where = "the best rate of each method" + (" and its neighbours" if part.neighbours else "")
                where = f"at {where}" if len(part.rates) > 1 else "of each method"
                commands.append(f"then seeds {part.first_seeds} to {part.seeds - 1} {where}: up to {later} jobs")
                count += later
            minutes = count * part.seconds / part.beside / 60
            total += minutes
            lines.append(f"# {self.study.name}, {key}: about {minutes:.1f} minutes, {part.beside} at a time")
            lines += commands
        return lines, total


def neighbours(rate: float, part: StudyPart) -> list[float]:
    """A rate of the part's grid with its neighbours on both sides."""
    place = part.rates.index(rate)
    return part.rates[max(0, place - part.neighbours) : place + part.neighbours + 1]


def best_rates(trials: Mapping[StudyJob, Record]) -> dict[str, float]:
    """The rate with the best validation accuracy of each method, as `compare --tune` chooses it."""
    of_run = {record.run_id: job for job, record in trials.items()}
    chosen: dict[str, float] = {}
    for found in group(trials.values()):
        for method in tune(found, RATE)[0].methods:
            if method.runs:  # else it failed at every rate
                job = of_run[method.runs[-1].run_id]
                chosen[job.method] = job.rate
    return chosen


def _report(many: int) -> Report:
    """Prints a line for each of so many jobs as it ends."""
    number = count(1)

    def report(job: StudyJob, result: Result, seconds: float) -> None:
        ending = "finished" if result.status == FINISHED else result.message
        _log.info("  %d/%d  %s: %s, %.0f s", next(number), many, job, ending, seconds)

    return report
