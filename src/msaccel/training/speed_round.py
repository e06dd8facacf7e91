"""The speed of jobs that take turns in one process: `python -m msaccel.training.speed_round REQUEST`.

A shared machine's speed drifts by tens of per cent within seconds, so jobs that run one after the other cannot tell a
few per cent apart. Here every job trains on the same number of samples in each turn, for a tenth of a second, and its
share of the turn's time is what counts. Where a job does something only every so many updates, a turn has that many
or a multiple, so that the median turn includes it. Measured are updates and the drawing of their samples, without
compiling, evaluation and tracking. Each job then gets a run in MLflow, with the tag `in_turns`.

The request is JSON: `sweep_id`, and `jobs`, a list of overrides for each.
"""

from __future__ import annotations

import json
import logging
import math
import os
import statistics
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path

from msaccel.accel import chosen, label
from msaccel.config.run_name import run_name
from msaccel.devices import contention
from msaccel.devices.denormals import flush_denormals
from msaccel.errors import ConfigError, UserError
from msaccel.launch import log
from msaccel.step.stage import nothing_to_begin
from msaccel.step.update import Windows, sizes
from msaccel.tracking.start import start
from msaccel.tracking.status import IN_TURNS
from msaccel.training.job import log_identity
from msaccel.training.notebook import build_job

TURNS, LEAST_TURNS = 60, 12
SECONDS = 0.1  # that the first job's turn takes, about, unless the jobs' periods are longer

_log = logging.getLogger("msaccel.training.speed_round")  # __name__ is __main__


class TimedJob:
    """A job of one process that trains on as many samples as it is told, and says how long that took.

    Args:
        overrides: as for `run.py`.

    Raises:
        UserError: the job cannot be built, or its updates are not all of one kind or need what a job computes before
            them, so that it has no single speed.
    """

    def __init__(self, overrides: Sequence[str]) -> None:
        self.overrides, self.job = list(overrides), build_job(*overrides)
        stage, plan = self.job.stages[0], self.job.plan
        updates = stage.budget.updates
        self._update, self._rate = stage.update.at(0, updates), plan.rate(stage.budget, 0)
        first, last = (self.job.epoch_samples.of(epoch).shape for epoch in (0, plan.epochs - 1))
        periods = [method.period(settings) for _, method, settings in chosen(self.job.config)]
        if (
            len(self.job.stages) > 1
            or stage.begin is not nothing_to_begin
            or any(stage.update.at(done, updates) is not self._update for done in range(updates))
            or first != last
            or None in periods
        ):
            raise ConfigError(
                f"accel={label(self.job.config.accel)} has no single speed: its updates are of several kinds, or need "
                "what is computed before them; compare time/train_s of whole jobs instead."
            )
        self.samples_of_update = stage.budget.sampler.global_batch
        self.period = math.lcm(self.job.config.optimizer.period, *filter(None, periods))
        # Without the short update at the end of an epoch.
        self._windows = filter(self._is_whole, self.job.windows())

    def _is_whole(self, windows: Windows) -> bool:
        return sum(n for window in windows for n in sizes(window)) == self.samples_of_update

    def train(self, samples: int) -> float:
        """Trains on so many samples, which are whole updates; returns the seconds that it took."""
        started = time.perf_counter()
        for _ in range(samples // self.samples_of_update):
            signals = self._update(next(self._windows), self._rate)
            if self.job.evaluation_weights:
                self.job.evaluation_weights.after_update()
        signals.outcome.asnumpy()  # waits until it is computed
        return time.perf_counter() - started

    def log(self, sweep_id: str, speed: float, trained: int, turns: int, contended: float | None) -> None:
        """Makes the job's run in MLflow, from its samples per second and the samples of all turns."""
        config, updates = self.job.config, trained // self.samples_of_update
        run = start(config, run_name(config), sweep_id, Path.cwd())
        with run:
            log_identity(run, config, self.job.data, updates)
            run.tag(**{IN_TURNS: str(turns)})
            run.text("overrides.txt", "".join(f"{line}\n" for line in self.overrides))
            values = {"throughput/samples_per_sec": speed, "time/train_s": trained / speed}
            if contended is not None:
                values["machine/contended"] = contended
            run.metrics(updates, values)


def take_turns(jobs: Sequence[TimedJob], most: int = TURNS) -> tuple[int, list[list[float]]]:
    """Lets jobs train in turns of whole periods, each time another one first.

    Args:
        most: turns; fewer if they are longer than `SECONDS`, but no fewer than `LEAST_TURNS`.

    Returns:
        The samples of a turn; for each job the seconds of its turns.
    """
    least = math.lcm(*(job.samples_of_update * job.period for job in jobs))
    for job in jobs:
        job.train(least)  # compiles
    once = jobs[0].train(least)
    samples = least * max(1, round(SECONDS / once))
    seconds: list[list[float]] = [[] for _ in jobs]
    for turn in range(min(most, max(LEAST_TURNS, round(TURNS * SECONDS / max(once, SECONDS))))):
        for number in range(len(jobs)):
            place = (turn + number) % len(jobs)
            seconds[place].append(jobs[place].train(samples))
    return samples, seconds


def speeds(samples: int, seconds: Sequence[Sequence[float]]) -> list[float]:
    """The samples per second of each job, from what `take_turns` returned.

    The median of a job's share of a turn's time, times the median turn: what slows all jobs of a turn alike cancels.
    """
    turns = [statistics.geometric_mean(turn) for turn in zip(*seconds, strict=True)]
    shares = (statistics.median(own / turn for own, turn in zip(of_job, turns, strict=True)) for of_job in seconds)
    return [samples / (share * statistics.median(turns)) for share in shares]


def must_share_a_process(jobs: Sequence[TimedJob]) -> None:
    """Raises ConfigError unless all jobs are of one rank, on the same device, with the same threads and kernels."""
    configs = [job.job.config for job in jobs]
    for device in (config.device for config in configs):
        if device.ranks > 1:
            raise ConfigError(f"device={device.name} has several ranks, and a turn is that of one; write device=cpu.")
    if len({(config.device.target, config.device.threads, config.kernels.use) for config in configs}) > 1:
        raise ConfigError(
            "jobs that take turns in one process share device, device.threads and kernels.use; write the same for all."
        )


def main(request: str) -> int:
    log.set_up()
    flush_denormals()
    threading.Thread(target=_end_with_study, daemon=True).start()
    requested = json.loads(request)
    try:
        jobs = [TimedJob(overrides) for overrides in requested["jobs"]]
        must_share_a_process(jobs)
        before = contention.read()
        samples, seconds = take_turns(jobs)
        now, threads = contention.read(), jobs[0].job.config.device.threads
        contended = contention.contended(before, now, now.own - before.own, threads)
        turns = len(seconds[0])
        for job, speed in zip(jobs, speeds(samples, seconds), strict=True):
            job.log(requested["sweep_id"], speed, samples * turns, turns, contended)
    except UserError as error:
        _log.error("%s", error)
        return 1
    return 0


def _end_with_study() -> None:
    sys.stdin.read()
    os._exit(1)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
