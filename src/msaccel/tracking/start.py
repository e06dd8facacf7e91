"""The beginning of a run in MLflow: a new one with its tags and parameters, or one that goes on."""

from __future__ import annotations

import socket
from collections.abc import Callable
from pathlib import Path

import mlflow.entities as entities
from mlflow import MlflowClient

from msaccel.errors import TrackingError, UserError
from msaccel.schema import Config, leaves
from msaccel.tracking.credentials import is_server, without_password
from msaccel.tracking.heartbeat import HEARTBEAT, now
from msaccel.tracking.mlflow_run import Run
from msaccel.tracking.provenance import git_commit
from msaccel.tracking.retry import SECONDS, call_with_retries, reason
from msaccel.tracking.saved_view import COLOUR, run_colour, save_view
from msaccel.tracking.status import JOB_FOLDER
from msaccel.tracking.store import experiment_id, must_keep_artifacts_in, open_store, sqlite_file

_MOST_PARAMS = 100


def start(
    config: Config,
    label: str,
    name: str,
    sweep_id: str,
    folder: Path,
    resume: str = "",
    created: Callable[[str], object] = lambda run_id: None,
) -> Run:
    """Creates the run of a job with its tags and parameters, or opens the one that is resumed.

    A server that is just starting again is waited for.

    Args:
        label: the accelerators in slot order, `accum+clip` or `none`.
        name: the run's name, `<accel>-<device>-s<seed>`.
        sweep_id: shared by the runs of a sweep; empty for a single run.
        folder: of the job.
        resume: id of the run that goes on; empty for a new one.
        created: told the run's id as soon as it exists, since what follows may fail.

    Raises:
        UserError: there is no usable store, or it does not take the run.
    """
    tracking = config.tracking
    seconds = min(SECONDS, 60 * tracking.patience_minutes) if is_server(tracking.uri) else 0.0
    client = open_store(tracking.uri, seconds)
    try:
        return _started(client, config, label, name, sweep_id, folder, resume, created)
    except UserError:
        raise
    except Exception as error:  # MLflow's own, SQLAlchemy's, those of an HTTP library
        where = without_password(tracking.uri)
        raise TrackingError(
            f"tracking.uri={where} does not take the run ({reason(error)}); write another one."
        ) from error


def _started(
    client: MlflowClient,
    config: Config,
    label: str,
    name: str,
    sweep_id: str,
    folder: Path,
    resume: str,
    created: Callable[[str], object],
) -> Run:
    tracking = config.tracking
    artifacts = None if is_server(tracking.uri) else tracking.artifacts
    experiment = call_with_retries(lambda: experiment_id(client, tracking.experiment, artifacts), name)
    if artifacts and not resume:  # a run that goes on has its own place
        call_with_retries(lambda: must_keep_artifacts_in(artifacts, client, experiment), name)
    call_with_retries(lambda: save_view(client, experiment), name)
    tags = {
        "accel": label,
        "model": config.model.name,
        "data": config.data.name,
        "device": config.device.name,
        "simulated": str(config.device.simulated).lower(),
        "seed": str(config.seed),
        "git_commit": git_commit(),
        JOB_FOLDER: f"{socket.gethostname()}:{folder}",
        HEARTBEAT: now(),
        COLOUR: run_colour(label),
        "mlflow.source.name": "run.py",
        "mlflow.source.type": "LOCAL",
        **({"sweep_id": sweep_id} if sweep_id else {}),
    }
    minutes = tracking.patience_minutes
    if resume:
        run, known = call_with_retries(lambda: reopen(client, resume, minutes), name)
        run.tag(**{JOB_FOLDER: tags[JOB_FOLDER], HEARTBEAT: tags[HEARTBEAT]})
    else:
        new = call_with_retries(lambda: client.create_run(experiment, run_name=name, tags=tags), name)
        run, known = Run(client, new.info.run_id, minutes=minutes), {}
    created(run.run_id)
    run.database = sqlite_file(tracking.uri)
    wanted = {"accel": label, **parameters(config)}
    params = [entities.Param(key, value) for key, value in wanted.items() if key not in known]
    for first in range(0, len(params), _MOST_PARAMS):
        run.parameters(params[first : first + _MOST_PARAMS])
    return run


def reopen(client: MlflowClient, run_id: str, minutes: float = 60.0) -> tuple[Run, dict[str, str]]:
    """A run that goes on, knowing what it has logged; and its parameters, which MLflow does not let change."""
    client.update_run(run_id, status="RUNNING")
    data = client.get_run(run_id).data
    logged = {(name, point.step) for name in data.metrics for point in client.get_metric_history(run_id, name)}
    return Run(client, run_id, logged, minutes), data.params


def parameters(config: Config) -> dict[str, str]:
    """The resolved configuration with dotted keys."""
    return {key: "null" if value is None else str(value) for key, value, _ in leaves(config)}
