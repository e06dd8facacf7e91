"""What is left to do for a sweep's job that was started before: nothing, a run to resume, or all of it.

Its status is read from MLflow, since a process may be killed before it writes its status into the folder.
"""

from __future__ import annotations

import socket
from dataclasses import replace

from mlflow import MlflowClient
from mlflow.entities import Run
from mlflow.exceptions import MlflowException

from msaccel.config import compose
from msaccel.errors import UserError
from msaccel.launch.job import Result, Task
from msaccel.launch.job_folder import JobFolder
from msaccel.launch.resume_changes import differences
from msaccel.schema import Config
from msaccel.tracking.status import FAILED, FINISHED, JOB_FOLDER, REFUSED
from msaccel.tracking.store import must_be_active, open_store

_CLOCK_SKEW_S = 60.0  # by which clocks of a cluster may differ


def rejoin(config: Config, folder: JobFolder, task: Task, searched: bool = False) -> tuple[Config, Task] | Result:
    """What is left to do of a job.

    Args:
        config: the job's settings as they are composed now.
        folder: locked; no process of the job runs any more.
        task: what a new job would be told.
        searched: whether later jobs were chosen by the result of this one; then it is not tried again if it failed.

    Returns:
        How it ended, if nothing is left; else its settings and task, which names the run to resume if there is one.

    Raises:
        UserError: the store cannot be used.
    """
    saved = compose.load(folder.config)
    reasons, recorded = differences(saved, config)
    earlier_result = folder.result()
    if searched and earlier_result and earlier_result.status in (FAILED, REFUSED) and not reasons:
        return earlier_result
    run = _run(open_store(config.tracking.uri), config, folder)
    if run is None:
        folder.start_over()
        return config, task
    run_id, uri = run.info.run_id, config.tracking.uri
    if reasons:
        return folder.finish(Result(task.name, REFUSED, run_id, uri, " ".join(reasons)))
    if run.info.status == FINISHED:
        return folder.finish(Result(task.name, FINISHED, run_id, uri))
    device = replace(config.device, simulate=saved.device.simulate)  # as it was decided then
    changed = folder.task().changed | recorded
    return replace(config, device=device), replace(task, resume=run_id, changed=changed)


def _run(client: MlflowClient, config: Config, folder: JobFolder) -> Run | None:
    """The job's run; None if it has none, or had one that was deleted."""
    run_id = folder.mlflow_run()[0] or folder.task().resume
    try:
        if not run_id:
            return _unrecorded(client, config, folder)
        run = client.get_run(run_id)
        if run.info.lifecycle_stage != "active":  # else its checkpoints would be lost with a job that starts over
            must_be_active(client.get_experiment(run.info.experiment_id))
    except MlflowException as error:
        if error.error_code != "RESOURCE_DOES_NOT_EXIST":
            raise UserError(f"MLflow does not say what became of the job in {folder.path} ({error}).") from error
        return None
    return run if run.info.lifecycle_stage == "active" else None


def _unrecorded(client: MlflowClient, config: Config, folder: JobFolder) -> Run | None:
    """The run of a process that was killed between creating it and writing its id into the folder."""
    experiment = client.get_experiment_by_name(config.tracking.experiment)
    if experiment is None:
        return None
    must_be_active(experiment)
    since = int(1000 * ((folder.path / "job.json").stat().st_mtime - _CLOCK_SKEW_S))
    first = ["attributes.start_time"]
    runs = client.search_runs([experiment.experiment_id], f"attributes.start_time > {since}", order_by=first)
    here = f"{socket.gethostname()}:{folder.path}"
    return next((run for run in runs if run.data.tags.get(JOB_FOLDER) == here), None)
