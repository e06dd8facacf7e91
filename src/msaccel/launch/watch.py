"""Watches the processes of a job: notices ranks that ended or were killed, other servers' failures, and time-outs."""

from __future__ import annotations

import math
import time

from msaccel.launch.job_folder import JobFolder
from msaccel.launch.outcome import lost_another
from msaccel.launch.peers import JobOutcome, Peers
from msaccel.launch.processes import Processes
from msaccel.tracking.status import FINISHED

_SECONDS_AFTER_A_FAILURE = 5.0
_SECONDS_FOR_ANOTHER_SERVER = 12.0  # longer: it waits itself before it reports what happened there


class JobTimeout(Exception):
    """The job has taken longer than `sweep.job_timeout_s`; the message is a sentence."""


def watch(folder: JobFolder, processes: Processes, peers: Peers, seconds: float | None) -> JobOutcome | None:
    """Waits for the end of this machine's ranks, or for the end of the job on another server.

    After a failure the others are given a while: the first rank to report the same, with its run ended properly, and
    another server to report what happened there.

    Args:
        seconds: how long the job may take; None: no limit.

    Returns:
        The outcome that another server reported, if one did.

    Raises:
        JobTimeout: the seconds have passed.
    """
    until = time.monotonic() + (math.inf if seconds is None else seconds)
    remote: JobOutcome | None = None
    while not processes.failed():
        if not processes.running():
            return remote
        remote = remote or peers.poll()
        if remote and remote.status != FINISHED:
            return remote
        if time.monotonic() > until:
            raise JobTimeout(
                f"the job did not end within sweep.job_timeout_s={seconds:g}; resume it, with more seconds."
            )
        time.sleep(0.05)
    begun = time.monotonic()
    while not _cause_is_known(folder, processes, peers, remote, time.monotonic() - begun):
        remote = remote or peers.poll()
        time.sleep(0.05)
    return remote


def _cause_is_known(
    folder: JobFolder, processes: Processes, peers: Peers, remote: JobOutcome | None, waited: float
) -> bool:
    """Whether the cause of a failure is known, or will not be."""
    running = processes.running()
    if not all(lost_another(folder, process) for process in processes.failed()):
        return waited > _SECONDS_AFTER_A_FAILURE or not any(process.rank == 0 for process in running)
    if remote or waited > _SECONDS_FOR_ANOTHER_SERVER:
        return True
    if peers.peers and not running:
        return False
    return not running or waited > _SECONDS_AFTER_A_FAILURE
