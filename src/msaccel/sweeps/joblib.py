"""Sweeps whose jobs joblib runs in workers: the workers end with the sweep, and each job after its current update.

On its own, joblib would kill the processes of all jobs when the sweep is interrupted, and leave them when it is killed.
"""

from __future__ import annotations

import logging
import os
import signal
import sys
import threading
import time
from contextlib import suppress
from functools import cache
from types import FrameType
from typing import Any

from msaccel.launch.job_folder import JobFolder
from msaccel.launch.processes import INTERRUPT
from msaccel.sweeps.folder import STOPPING, SweepFolder
from msaccel.tracking.stopping import SECONDS_TO_END

_log = logging.getLogger(__name__)
_interrupted = threading.Event()  # in a worker


def end_with_sweep() -> None:
    """Makes this process, a worker of joblib's, end when the process of the sweep is killed. Each job calls it.

    On its own, the worker would finish its job and then start the jobs that were handed to it already.
    """
    if os.getppid() != _watched_parent():
        os._exit(1)
    while _interrupted.is_set():  # the process of the sweep ends this one once the other jobs have ended
        time.sleep(1)


@cache
def _watched_parent() -> int:
    """The process of the sweep, watched from the worker's first job on."""
    parent = os.getppid()
    signal.signal(INTERRUPT, _interrupt)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # of a terminal: the process of the sweep hands it on
    threading.Thread(target=_watch, args=[parent], daemon=True).start()
    return parent


def _watch(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(0.5)
    os.kill(os.getpid(), INTERRUPT)  # the launcher in the main thread then ends the job
    time.sleep(2 * SECONDS_TO_END)
    os._exit(1)


def _interrupt(signal_number: int, frame: FrameType | None) -> None:
    _interrupted.set()
    raise KeyboardInterrupt


def end_jobs(sweep: SweepFolder) -> None:
    """Lets the jobs that joblib runs write their last checkpoints; joblib itself would kill them at once."""
    loky: Any = sys.modules.get("joblib.externals.loky.reusable_executor")
    workers = list(loky._executor._processes or ()) if loky and loky._executor else []
    if not workers:
        return
    _log.warning(STOPPING)
    for worker in workers:
        with suppress(ProcessLookupError):
            os.kill(worker, INTERRUPT)
    until = time.monotonic() + SECONDS_TO_END
    while time.monotonic() < until and any(map(_is_ending, sweep.jobs())):
        time.sleep(0.1)


def _is_ending(job: JobFolder) -> bool:
    return bool(job.ranks_here()) or (job.is_held("launcher") and not job.is_ended())
