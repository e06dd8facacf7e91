"""The processes that train a study's jobs, several at a time."""

from __future__ import annotations

import json
import logging
import os
import select
import signal
import subprocess
import sys
import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from itertools import count
from types import TracebackType

from msaccel.errors import ConfigError, TrainingError
from msaccel.launch.job import Result
from msaccel.study.jobs import StudyJob
from msaccel.tracking.credentials import complete
from msaccel.tracking.progress_bar import span
from msaccel.tracking.status import FINISHED, KILLED, REFUSED

_log = logging.getLogger(__name__)
COMMAND = [sys.executable, "-m", "msaccel.study.launcher"]
MIN_MEASURED = 3  # jobs, before anything is concluded from the time that they took

Report = Callable[[StudyJob, Result, float], None]  # a job, its result, and the seconds that it took


class _Launcher:
    """A process of `msaccel.study.launcher`, and the job that it was given last."""

    def __init__(self, uri: str) -> None:
        self.process = subprocess.Popen(
            COMMAND,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "MLFLOW_TRACKING_URI": complete(uri)},
            start_new_session=True,  # Ctrl-C is for the study, which passes it on once
        )
        assert self.process.stdin and self.process.stdout
        self.requests, self.answers = self.process.stdin, self.process.stdout
        self.job: StudyJob | None = None
        self.started = 0.0

    def give(self, job: StudyJob, sweep_id: str) -> None:
        self.job, self.started = job, time.monotonic()
        try:
            self.requests.write(json.dumps([sweep_id, *job.overrides]) + "\n")
            self.requests.flush()
        except BrokenPipeError as error:  # it was killed while it was idle
            raise self.has_ended() from error

    def result(self) -> Result:
        line = self.answers.readline()
        if not line:
            raise self.has_ended()
        return Result(**json.loads(line))

    def has_ended(self) -> TrainingError:
        return TrainingError(f"the process that launches jobs ended with exit code {self.process.wait()}.")


class Launchers:
    """Trains jobs in one store; as a context manager it ends its processes, interrupting the jobs under way.

    Args:
        sweep_id: shared by the jobs, as in a sweep.
    """

    def __init__(self, uri: str, sweep_id: str) -> None:
        self._uri, self._sweep_id = uri, sweep_id
        self._idle = list[_Launcher]()
        self._busy = list[_Launcher]()

    def train(self, jobs: Sequence[StudyJob], beside: int, report: Report) -> None:
        """Trains jobs, `beside` at a time, and reports each as it ends.

        Raises:
            ConfigError: a job was refused, or failed before it had a run.
            KeyboardInterrupt: a job was interrupted.
        """
        waiting = deque(jobs)
        while waiting or self._busy:
            while waiting and len(self._busy) < beside:
                self._start(waiting.popleft())
            ready = select.select([one.answers for one in self._busy], [], [])[0]
            for one in [one for one in self._busy if one.answers in ready]:
                self._end(one, report)

    def _start(self, job: StudyJob) -> None:
        launcher = self._idle.pop() if self._idle else _Launcher(self._uri)
        self._busy.append(launcher)
        launcher.give(job, self._sweep_id)

    def _end(self, launcher: _Launcher, report: Report) -> None:
        result = launcher.result()
        self._busy.remove(launcher)
        self._idle.append(launcher)
        assert launcher.job
        report(launcher.job, result, time.monotonic() - launcher.started)
        if result.status == KILLED:
            raise KeyboardInterrupt
        if result.status == REFUSED or (result.status != FINISHED and not result.run_id):
            raise ConfigError(result.message)

    def __enter__(self) -> Launchers:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        every = [*self._busy, *self._idle]
        for launcher in every:
            with suppress(BrokenPipeError):
                launcher.requests.close()
        try:
            for launcher in every:
                launcher.process.wait()
        except KeyboardInterrupt:  # a second one does not wait for the last checkpoints
            for launcher in every:
                launcher.process.send_signal(signal.SIGINT)
            for launcher in every:
                launcher.process.wait()


def progress(many: int, beside: int) -> Report:
    """A function that prints a line for each job as it ends, from the third on with an estimate of the time left."""
    numbers, took = count(1), list[float]()

    def report(job: StudyJob, result: Result, seconds: float) -> None:
        number, ending = next(numbers), "finished" if result.status == FINISHED else result.message
        took.append(seconds)
        left = sum(took) / number * (many - number) / beside
        estimate = f" … about {span(left)} left" if MIN_MEASURED <= number < many else ""
        _log.info("  %d/%d  %s: %s, %.0f s%s", number, many, job, ending, seconds, estimate)

    return report
