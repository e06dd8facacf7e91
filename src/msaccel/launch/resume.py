"""Finds an unfinished run: in MLflow, and in the folder of its job."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from mlflow import MlflowClient
from mlflow.entities import Run, ViewType
from mlflow.exceptions import MlflowException

from msaccel.config import compose
from msaccel.config.overrides import override
from msaccel.errors import UserError
from msaccel.launch.job import Task
from msaccel.launch.job_folder import JobFolder
from msaccel.launch.resume_changes import TAGS, apply_overrides, fixed_settings
from msaccel.schema import CLASSES, Config
from msaccel.tracking.retry import is_permanent
from msaccel.tracking.status import FINISHED, JOB_FOLDER, changed_settings
from msaccel.tracking.store import find_experiment, open_store, reading, search_runs


@dataclass(frozen=True)
class ResumableJob:
    """A job whose run can be resumed.

    Attributes:
        folder: of its job, where its checkpoints are.
        config: the settings to go on with.
        task: what else the job is told.
    """

    folder: JobFolder
    config: Config
    task: Task


def find(config: Config, typed: list[str], own_folder: JobFolder) -> ResumableJob:
    """Finds the run that `config.resume` names.

    Args:
        config: what Hydra composed from `typed`.
        typed: the user's overrides; what they change besides `resume` must be allowed to change.
        own_folder: the folder of this start, for a server other than the run's first, which has no other folder.

    Raises:
        UserError: there is no such run, it has finished, its folder is gone, or it would become another job.
    """
    assert config.resume
    client = open_store(config.tracking.uri)
    run = latest(client, config.tracking.experiment) if config.resume == "latest" else _get(client, config.resume)
    run_id, status = run.info.run_id, run.info.status
    if status == FINISHED:
        raise UserError(f"resume={run_id} has finished, so there is nothing to resume; start a new job.")
    if run.info.lifecycle_stage != "active":
        raise UserError(f"resume={run_id} was deleted in MLflow; restore it there, or give another run.")
    if config.device.server_rank:
        folder, original, task = own_folder, _from_artifacts(client, run_id), Task(run.info.run_name)
    else:
        folder = folder_of(run)
        original, task = compose.load(folder.config), folder.task()
    refuse_other_settings(run, original)
    original.tracking.uri = config.tracking.uri
    wanted, recorded, refusals = apply_overrides(original, config, typed)
    if refusals:
        raise UserError("\n".join(refusals))
    overrides = [*task.overrides, *as_overrides(recorded, wanted)]
    before = {key: value for key, value in task.changed.items() if key not in recorded}
    changed, name = before | recorded, wanted.tracking.name or task.run_name
    return ResumableJob(folder, wanted, Task(task.name, overrides, task.sweep_id, False, run_id, changed, name))


def as_overrides(recorded: Mapping[str, str], config: Config) -> Iterator[str]:
    """The overrides that repeat recorded changes; each tag is one of its own."""
    for key, value in recorded.items():
        if key == TAGS:
            yield from (override(f"++{TAGS}.{name}", tag) for name, tag in config.tracking.tags.items())
        else:
            yield override(key, value)


def refuse_other_settings(run: Run, config: Config) -> None:
    """Compares a job's config.yaml with the parameters of its run, under which its results will be compared.

    Raises:
        UserError: they differ; the file was edited, or is another job's.
    """
    began = run.data.params | changed_settings(run.data.tags)
    for key, now in fixed_settings(config).items():
        then = began.get(key, now)
        if now != then and (key, now) != (CLASSES, "null"):  # the run has what the data said
            raise UserError(
                f"{key} was {then} when run {run.info.run_id} began and is {now} in the job's config.yaml; put it "
                "back, or start a new job."
            )


def latest(client: MlflowClient, experiment: str) -> Run:
    """The newest run of an experiment that has not finished.

    Raises:
        UserError: there is none.
    """
    found = find_experiment(client, experiment)
    unfinished = f"attributes.status != 'FINISHED' and tags.{JOB_FOLDER} != ''"
    order = ["attributes.start_time DESC"]
    ids = [found.experiment_id] if found else []
    runs = search_runs(client, ids, unfinished, ViewType.ACTIVE_ONLY, 1, order) if ids else []
    if not runs:
        raise UserError(
            f"resume=latest finds no unfinished run in the experiment {experiment}; write tracking.experiment= with "
            "another one, or resume= with a run's id."
        )
    return runs[0]


def _get(client: MlflowClient, run_id: str) -> Run:
    with reading(client, f"run {run_id}"):
        try:
            return client.get_run(run_id)
        except MlflowException as error:
            if not is_permanent(error):
                raise
            raise UserError(
                f"resume={run_id} is not a run of this store; give an id as MLflow shows it, and tracking.uri= where "
                "the run is in another store."
            ) from error


def folder_of(run: Run) -> JobFolder:
    """The folder in which a run's job keeps what it needs to go on.

    Raises:
        UserError: it is gone, or on another machine.
    """
    host, _, path = run.data.tags.get(JOB_FOLDER, "").partition(":")
    folder = JobFolder(Path(path))
    if not path or not os.path.exists(folder.config):
        where = f"in {path} on {host}, which is not there any more" if path else "nowhere"
        raise UserError(f"resume={run.info.run_id} kept its checkpoints {where}; start a new job.")
    if folder.mlflow_run()[0] not in ("", run.info.run_id):  # a finished job's folder is free for another
        raise UserError(f"resume={run.info.run_id} names {path}, the folder of another run; start a new job.")
    return folder


def _from_artifacts(client: MlflowClient, run_id: str) -> Config:
    with tempfile.TemporaryDirectory() as scratch:
        try:
            return compose.load(Path(client.download_artifacts(run_id, "config.yaml", scratch)))
        except (MlflowException, OSError) as error:
            raise UserError(
                f"resume={run_id} has no config.yaml that this server can read; give tracking.uri= with a server of "
                "MLflow's that all servers reach."
            ) from error
