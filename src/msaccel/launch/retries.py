"""One job over all its attempts: what an earlier one has left goes on, and what crashed is tried again."""

from __future__ import annotations

import sys

from msaccel.errors import UserError
from msaccel.launch import launcher
from msaccel.launch.job_folder import JobFolder, Result, Task
from msaccel.schema import Config
from msaccel.tracking.status import FAILED


def run(config: Config, folder: JobFolder, task: Task) -> Result:
    """Trains a job; one that crashed goes on from its last checkpoint, at most `sweep.retries` times."""
    result = launcher.run(config, folder, task)
    for attempt in range(1, config.sweep.retries + 1):
        if not result.crashed:
            break
        print(f"{task.name}: is tried again, {attempt} of sweep.retries={config.sweep.retries}", file=sys.stderr)
        left = what_is_left(config, folder, task)
        result = left if isinstance(left, Result) else launcher.run(*left)
    return result


def run_again(config: Config, folder: JobFolder, task: Task, searched: bool) -> Result:
    """Trains what is left of a job of a sweep that was broken off; all of it, if it was never begun.

    Args:
        folder: locked by the caller.
        searched: later jobs of the sweep are chosen by how this one ends.
    """
    left = what_is_left(config, folder, task, searched)
    return left if isinstance(left, Result) else run(*left)


def what_is_left(
    config: Config, folder: JobFolder, task: Task, searched: bool = False
) -> tuple[Config, JobFolder, Task] | Result:
    """How to go on with a job, or how it has ended."""
    if not folder.is_assigned():
        return config, folder, task
    from msaccel.launch.rejoin import rejoin  # MLflow's import takes a second

    try:
        folder.wait_for_ranks()
        left = rejoin(config, folder, task, searched)
    except UserError as error:
        print(f"{task.name}: {error}", file=sys.stderr)
        return folder.finish(Result(task.name, FAILED, message=str(error)))
    return left if isinstance(left, Result) else (left[0], folder, left[1])
