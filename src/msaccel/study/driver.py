"""Trains what is missing of a study: the trials of every rate, then the seeds of the chosen rates and their neighbours.

What MLflow has is never trained again, so an interrupted study goes on where it was. To train a job again, delete its
run in MLflow.
"""

from __future__ import annotations

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

from msaccel.compare import runs
from msaccel.compare.groups import group
from msaccel.compare.runs import Record
from msaccel.compare.tuning import tune
from msaccel.errors import ConfigError
from msaccel.files import ROOT
from msaccel.study.jobs import RATE, Found, Job, make
from msaccel.study.protocol import Part, Study
from msaccel.tracking.credentials import complete

_REFUSED, _INTERRUPTED = 2, 130


@dataclass
class Driver:
    """One study in one store.

    Attributes:
        more: overrides of every job that come last.
        known: the study's runs; read again after each phase.
    """

    study: Study
    client: MlflowClient
    uri: str
    more: Sequence[str] = ()
    known: Found = field(init=False)

    def __post_init__(self) -> None:
        self.read()

    def read(self) -> None:
        self.known = Found(runs.find(self.client, self.study.name))

    def trials(self, part: Part) -> list[Job]:
        """Every method at every rate, with the first seed."""
        return make(self.study, part, self.more, dict.fromkeys(part.methods, part.rates), [0])

    def seeds(self, part: Part) -> list[Job]:
        """Every method at its chosen rate and the neighbours of that, with all seeds."""
        rates = {name: neighbours(rate, part) for name, rate in self.chosen(part).items()}
        return make(self.study, part, self.more, rates, range(part.seeds))

    def jobs(self, part: Part) -> list[Job]:
        """All jobs of a part; without those that depend on trials that are missing."""
        trials = self.trials(part)
        if self.known.missing(trials):
            return trials
        return list(dict.fromkeys([*trials, *self.seeds(part)]))

    def methods(self, part: Part) -> dict[str, str]:
        """What the protocol calls the method of each run of a part."""
        return {run.run_id: job.method for job, run in self.known.of(self.jobs(part)).items()}

    def chosen(self, part: Part) -> dict[str, float]:
        """The rate of each method, by validation accuracy; a method that failed at every rate has none."""
        if len(part.rates) == 1:
            return dict.fromkeys(part.methods, part.rates[0])
        found = self.known.of(self.trials(part))
        return best(found)

    def run(self) -> None:
        """Trains every part to its end.

        Raises:
            ConfigError: a job was refused.
            KeyboardInterrupt: it was interrupted; what has finished is kept.
        """
        for key, part in self.study.parts.items():
            for phase, jobs in (("rates", self.trials), ("seeds", self.seeds)):
                missing = self.known.missing(jobs(part))
                if missing:
                    many = f"{len(missing)} {'job' if len(missing) == 1 else 'jobs'}, {part.beside} at a time"
                    print(f"{self.study.name}, {key}, {phase}: {many}", flush=True)
                    train(missing, part.beside, self.uri)
                    self.read()

    def plan(self) -> float:
        """Prints the commands of what is missing and its minutes; returns the minutes."""
        total = 0.0
        for key, part in self.study.parts.items():
            trials = self.known.missing(self.trials(part))
            lines = [job.command for job in trials]
            if trials:
                most = min(len(part.rates), 2 * part.neighbours + 1)
                more = len(part.methods) * most * (part.seeds - 1)
                where = "the best rate of each method" + (" and its neighbours" if part.neighbours else "")
                where = f"at {where}" if len(part.rates) > 1 else "of each method"
                lines.append(f"then seeds 1 to {part.seeds - 1} {where}: up to {more} jobs")
            else:
                missing = self.known.missing(self.seeds(part))
                more = len(missing)
                lines += [job.command for job in missing]
            minutes = (len(trials) + more) * part.seconds / part.beside / 60
            total += minutes
            print(f"# {self.study.name}, {key}: about {minutes:.1f} minutes, {part.beside} at a time", *lines, sep="\n")
        return total


def neighbours(rate: float, part: Part) -> list[float]:
    """A rate of the part's grid with the next lower and the next higher ones."""
    place = part.rates.index(rate)
    return part.rates[max(0, place - part.neighbours) : place + part.neighbours + 1]


def best(trials: Mapping[Job, Record]) -> dict[str, float]:
    """The rate at which the validation accuracy of each method was best: what `compare --tune` takes."""
    of_run = {record.run_id: job for job, record in trials.items()}
    chosen: dict[str, float] = {}
    for found in group(trials.values()):
        for method in tune(found, RATE)[0].methods if found.methods else ():
            job = of_run[method.runs[-1].run_id]
            chosen[job.method] = job.rate
    return chosen


@dataclass(frozen=True, eq=False)
class Running:
    """A job at work, and what it says when something is wrong."""

    process: subprocess.Popen[bytes]
    job: Job
    errors: IO[str]
    begun: float


def train(jobs: Sequence[Job], beside: int, uri: str) -> None:
    """Trains jobs, so many at a time, each in a `run.py` of its own."""
    waiting, running = deque(jobs), list[Running]()
    try:
        while waiting or running:
            while waiting and len(running) < beside:
                running.append(_start(waiting.popleft(), uri))
            time.sleep(0.1)
            for one in [one for one in running if one.process.poll() is not None]:
                running.remove(one)
                _report(one, f"{len(jobs) - len(waiting) - len(running)}/{len(jobs)}")
    finally:
        for one in running:
            one.process.send_signal(signal.SIGINT)
        for one in running:
            one.process.wait()


def _start(job: Job, uri: str) -> Running:
    errors = tempfile.TemporaryFile("w+")  # noqa: SIM115 - open as long as the job; nobody reads while it runs, and a pipe would fill up
    process = subprocess.Popen(
        [sys.executable, str(ROOT / "run.py"), *job.overrides],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=errors,
        env={**os.environ, "MLFLOW_TRACKING_URI": complete(uri)},
    )
    return Running(process, job, errors, time.monotonic())


def _report(one: Running, place: str) -> None:
    one.errors.seek(0)
    said, code, job = one.errors.read().strip().splitlines(), one.process.returncode, one.job
    one.errors.close()
    how = "finished" if code == 0 else said[-1] if said else f"exit code {code}"
    seconds = time.monotonic() - one.begun
    print(f"  {place}  {job.method}, {RATE}={job.rate:g}, seed {job.seed}: {how}, {seconds:.0f} s", flush=True)
    if code == _REFUSED:
        raise ConfigError(how)
    if code == _INTERRUPTED:
        raise KeyboardInterrupt
