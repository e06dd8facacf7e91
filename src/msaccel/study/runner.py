"""Trains the missing jobs of a study: trials of every rate, then all seeds of the chosen rates and their neighbours.

A job with a run in MLflow is not trained again, so an interrupted study goes on where it stopped. To train a job again,
delete its run in MLflow.
"""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import IO

from mlflow import MlflowClient

from msaccel.compare.groups import group
from msaccel.compare.runs import Record
from msaccel.compare.runs import find as find_runs
from msaccel.compare.tuning import tune
from msaccel.errors import ConfigError
from msaccel.files import ROOT
from msaccel.study.jobs import RATE, RunIndex, StudyJob, make_jobs
from msaccel.study.protocol import Study, StudyPart
from msaccel.tracking.credentials import complete

_log = logging.getLogger(__name__)
_REFUSED, _INTERRUPTED = 2, 130


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
        for key, part in self.study.parts.items():
            for phase, jobs in (("rates", self.trials), ("seeds", self.seeds)):
                missing = self.runs.missing(jobs(part))
                if missing:
                    many = f"{len(missing)} {'job' if len(missing) == 1 else 'jobs'}, {part.beside} at a time"
                    _log.info("%s, %s, %s: %s", self.study.name, key, phase, many)
                    train(missing, part.beside, self.uri)
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


@dataclass(frozen=True, eq=False)
class RunningJob:
    """A job that is being trained; `errors` is its stderr."""

    process: subprocess.Popen[bytes]
    job: StudyJob
    errors: IO[str]
    started: float


def train(jobs: Sequence[StudyJob], beside: int, uri: str) -> None:
    """Trains jobs, `beside` at a time, each in its own process of `run.py`."""
    waiting, running = deque(jobs), list[RunningJob]()
    try:
        while waiting or running:
            while waiting and len(running) < beside:
                running.append(_start(waiting.popleft(), uri))
            time.sleep(0.1)
            for one in [one for one in running if one.process.poll() is not None]:
                running.remove(one)
                _report(one, f"{len(jobs) - len(waiting) - len(running)}/{len(jobs)}")
    finally:
        if running:
            _log.warning("stopping the jobs under way, each after its current update")
        for one in running:
            one.process.send_signal(signal.SIGINT)
        for one in running:
            one.process.wait()


def _start(job: StudyJob, uri: str) -> RunningJob:
    errors = tempfile.TemporaryFile("w+")  # noqa: SIM115 - a pipe would fill up, since nobody reads until the job ends
    process = subprocess.Popen(
        [sys.executable, str(ROOT / "run.py"), *job.overrides],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=errors,
        env={**os.environ, "MLFLOW_TRACKING_URI": complete(uri)},
        start_new_session=True,  # Ctrl-C reaches this process alone, which passes it on once: twice would stop at once
    )
    return RunningJob(process, job, errors, time.monotonic())


def _report(one: RunningJob, counter: str) -> None:
    one.errors.seek(0)
    lines, code, job = one.errors.read().strip().splitlines(), one.process.returncode, one.job
    one.errors.close()
    ending = "finished" if code == 0 else lines[-1] if lines else f"exit code {code}"
    seconds = time.monotonic() - one.started
    name = f"{job.method}, {RATE}={job.rate:g}, seed {job.seed}"
    _log.info("  %s  %s: %s, %.0f s", counter, name, ending, seconds)
    if code == _REFUSED:
        raise ConfigError(ending)
    if code == _INTERRUPTED:
        raise KeyboardInterrupt
