"""What a job needs from earlier runs, fetched from MLflow into its folder."""

from __future__ import annotations

from pathlib import Path

from mlflow.exceptions import MlflowException

from msaccel.accel import chosen
from msaccel.errors import TrackingError
from msaccel.schema import Config
from msaccel.tracking.retry import call_with_retries, reason
from msaccel.tracking.store import open_store

_NO_SUCH_RUN = ("RESOURCE_DOES_NOT_EXIST", "INVALID_PARAMETER_VALUE")  # MLflow's codes


def fetch_from_runs(config: Config, folder: Path) -> None:
    """Puts what the methods need from earlier runs into the job's folder."""
    for _, method, settings in chosen(config):
        method.fetch(settings, folder, lambda *wanted: download(config.tracking.uri, *wanted))


def download(uri: str, run_id: str, path: str, folder: Path) -> Path | None:
    """A copy of an artifact of a run in this store, in the folder; None if it is not there.

    Raises:
        TrackingError: the store does not answer, or the copy cannot be made.
    """
    client = open_store(uri)
    try:
        listed = call_with_retries(lambda: client.list_artifacts(run_id, path.rpartition("/")[0]), run_id)
        if path not in [artifact.path for artifact in listed]:
            return None
        return Path(call_with_retries(lambda: client.download_artifacts(run_id, path, str(folder)), run_id))
    except Exception as error:
        if isinstance(error, MlflowException) and error.error_code in _NO_SUCH_RUN:
            return None
        raise TrackingError(
            f"{path} of run {run_id} cannot be fetched from MLflow ({reason(error)}); start again once that is fixed."
        ) from error
