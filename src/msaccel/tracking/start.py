"""The beginning of a run in MLflow: a new one with its tags and parameters, or one that is resumed."""

from __future__ import annotations

import logging
import math
import socket
from collections.abc import Callable, Sequence
from pathlib import Path

import mlflow.entities as entities
from mlflow import MlflowClient

from msaccel.accel import label
from msaccel.errors import TrackingError, UserError
from msaccel.schema import Config, TrackingSettings, parameters
from msaccel.tracking.credentials import is_server, sqlite_file, without_password
from msaccel.tracking.heartbeat import HEARTBEAT, now
from msaccel.tracking.mlflow_run import Run
from msaccel.tracking.provenance import DIRTY, differs_from, git_commit
from msaccel.tracking.retry import SECONDS, call_with_retries, reason
from msaccel.tracking.status import JOB_FOLDER
from msaccel.tracking.store import must_keep_artifacts_in, open_experiment, open_store
from msaccel.tracking.ui_view import COLOUR, DESCRIPTION, run_colour, save_view

_log = logging.getLogger(__name__)

COMMIT = "git_commit"
_MAX_PARAMS = 100


def start(
    config: Config,
    name: str,
    sweep_id: str,
    folder: Path,
    resume: str = "",
    created: Callable[[str], object] = lambda run_id: None,
    store: Sequence[str] = (),
    most_updates: float = math.inf,
) -> Run:
    """Creates the run of a job with its tags and parameters, or opens the one that is resumed.

    A server that is just starting again is waited for.

    Args:
        name: the run's name, as `msaccel.config.run_name` makes it.
        sweep_id: shared by the runs of a sweep; empty for a single run.
        folder: of the job.
        resume: id of the run to resume; empty for a new one.
        created: called with the run's id as soon as it exists, since what follows may fail.
        store: overrides that name the store in a command, if the job's own named it.
        most_updates: after which a resumed job ends.

    Raises:
        UserError: there is no usable store, it does not take the run, or the resumed one has logged more updates.
    """
    tracking = config.tracking
    seconds = min(SECONDS, 60 * tracking.patience_minutes) if is_server(tracking.uri) else 0.0
    client = open_store(tracking.uri, seconds)
    try:
        experiment = _experiment(client, tracking, name, new=not resume)
        if resume:
            run, data = call_with_retries(
                lambda: reopen(client, resume, tracking.patience_minutes, tracking.name, most_updates), name
            )
            run.tag(**tracking.tags, **_where(folder), **_other_code(name, data.tags.get(COMMIT, "unknown")))
            known = data.params
        else:
            tags = tracking.tags | _tags(config, sweep_id) | _where(folder)
            made = call_with_retries(lambda: client.create_run(experiment, run_name=name, tags=tags), name)
            run, known = Run(client, made.info.run_id, minutes=tracking.patience_minutes), {}
        created(run.run_id)
        run.database, run.store = sqlite_file(tracking.uri), store
        wanted = {"accel": label(config.accel), **parameters(config)}
        params = [entities.Param(key, value) for key, value in wanted.items() if key not in known]
        for first in range(0, len(params), _MAX_PARAMS):
            run.parameters(params[first : first + _MAX_PARAMS])
    except UserError:
        raise
    except Exception as error:  # MLflow's own, SQLAlchemy's, those of an HTTP library
        raise TrackingError(
            f"tracking.uri={without_password(tracking.uri)} does not take the run ({reason(error)}); write another one."
        ) from error
    return run


def _experiment(client: MlflowClient, tracking: TrackingSettings, name: str, *, new: bool) -> str:
    """The id of the job's experiment; saves its view, and for a new run checks where it keeps its artifacts."""
    artifacts = None if is_server(tracking.uri) else tracking.artifacts
    experiment = call_with_retries(lambda: open_experiment(client, tracking.experiment, artifacts), name)
    if artifacts and new:  # a resumed run has its place already
        must_keep_artifacts_in(artifacts, experiment)
    call_with_retries(lambda: save_view(client, experiment), name)
    return str(experiment.experiment_id)


def _tags(config: Config, sweep_id: str) -> dict[str, str]:
    """The tags of a new run, without those that say where its job is."""
    return {
        "accel": label(config.accel),
        "model": config.model.name,
        "data": config.data.name,
        "device": config.device.name,
        "simulated": str(config.device.simulated).lower(),
        "seed": str(config.seed),
        COMMIT: git_commit(),
        COLOUR: run_colour(label(config.accel)),
        "mlflow.source.name": "run.py",
        "mlflow.source.type": "LOCAL",
        **({"sweep_id": sweep_id} if sweep_id else {}),
        **({DESCRIPTION: config.tracking.note} if config.tracking.note else {}),
    }


def _where(folder: Path) -> dict[str, str]:
    """The tags that say where the job is, and that it lives."""
    return {JOB_FOLDER: f"{socket.gethostname()}:{folder}", HEARTBEAT: now()}


def _other_code(name: str, commit: str) -> dict[str, str]:
    """The tag that a resumed run gets where its job goes on with other code than that of its commit."""
    if commit.endswith(DIRTY) or not differs_from(commit):
        return {}
    _log.warning("%s: goes on with other code than it began with; its tag %s says %s now", name, COMMIT, DIRTY[1:])
    return {COMMIT: f"{commit}{DIRTY}"}


def reopen(
    client: MlflowClient, run_id: str, minutes: float, name: str | None, most_updates: float
) -> tuple[Run, entities.RunData]:
    """A resumed run, which knows what it has logged; and what MLflow has of it, such as parameters that cannot change.

    Args:
        name: a new name given by the user; None to keep the run's.
        most_updates: after which the job ends.

    Raises:
        UserError: more are logged; MLflow's values would remain those of the last of them.
    """
    data = client.get_run(run_id).data
    logged = {(metric, point.step) for metric in data.metrics for point in client.get_metric_history(run_id, metric)}
    last = max((step for metric, step in logged if not metric.startswith("system/")), default=0)
    if last > most_updates:
        raise UserError(
            f"the job ends after {most_updates} updates and has logged {last}; raise train.epochs or train.max_updates."
        )
    client.update_run(run_id, status="RUNNING", name=name)
    return Run(client, run_id, logged, minutes), data
