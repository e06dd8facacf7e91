"""The process that launches a study's jobs one after the other: `python -m msaccel.study.launcher`, started by
`msaccel.study.launcher_pool`.

It reads one job per line from standard input, and writes how each ended to standard output. Its workers, like those of
a sweep, are forks of one process that has imported MindSpore. When its input closes, for whatever reason, it interrupts
the current job and ends; the job resumes from its last checkpoint when it is launched again.
"""

from __future__ import annotations

import hashlib
import json
import os
import signal
import sys
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict
from queue import SimpleQueue
from threading import Thread

from msaccel.config.compose import absolute, from_overrides
from msaccel.config.run_name import run_name, short_name
from msaccel.errors import UserError
from msaccel.launch import launcher, log
from msaccel.launch.job import Result, Task
from msaccel.launch.job_folder import JobFolder
from msaccel.tracking.status import FINISHED, REFUSED


def main() -> None:
    log.set_up()
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell script's background job starts with it ignored
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # hides the jobs' own messages; warnings and errors are passed on
    requests: SimpleQueue[list[str] | None] = SimpleQueue()
    Thread(target=_read, args=[requests], daemon=True).start()
    with suppress(KeyboardInterrupt):
        while request := requests.get():
            study, *overrides = request
            print(json.dumps(asdict(launch(study, overrides))), file=answers, flush=True)


def _read(requests: SimpleQueue[list[str] | None]) -> None:
    for line in sys.stdin:
        requests.put(json.loads(line))
    requests.put(None)
    os.kill(os.getpid(), signal.SIGINT)


def launch(study: str, overrides: Sequence[str]) -> Result:
    """Trains a job to its end, or what an earlier launch has left to do of it; returns how it ended."""
    try:
        config = from_overrides(overrides)
    except UserError as error:
        return Result("", REFUSED, message=str(error))
    digest = hashlib.sha256(json.dumps([config.tracking.uri, *overrides]).encode()).hexdigest()
    folder = JobFolder(absolute(f"mlruns/jobs/{study}/{digest[:16]}"))
    folder.path.mkdir(parents=True, exist_ok=True)
    task = Task(short_name(config), list(overrides), study, quiet=True, run_name=run_name(config))
    try:
        lock = folder.lock("launcher", wait=True)
    except FileNotFoundError:  # the launcher of an earlier start, which was still at it, has finished the job
        return Result(task.name, FINISHED)
    with lock:
        result = launcher.run_in_sweep(config, folder, task, searched=False)
        if result.status == FINISHED:
            folder.clear()
    return result


if __name__ == "__main__":
    main()
