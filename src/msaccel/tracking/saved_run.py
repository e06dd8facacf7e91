"""A run as it was saved: its configuration and checkpoint, fetched from MLflow."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from mlflow.exceptions import MlflowException

from msaccel.errors import UserError, on_one_line
from msaccel.tracking.store import open_store


@dataclass(frozen=True)
class SavedRun:
    """The files of a run.

    Attributes:
        digest: of its data, as MLflow keeps it (36 characters); empty if the run has none.
    """

    config: Path
    weights: Path
    digest: str


def fetch(tracking_uri: str, run_id: str, which: str, folder: Path) -> SavedRun:
    """Lays a run's configuration and its `last` or `best` checkpoint into a folder.

    Raises:
        UserError: there is no such run, or it saved no such checkpoint.
    """
    client = open_store(tracking_uri)
    try:
        inputs = client.get_run(run_id).inputs
        config, weights = (
            Path(client.download_artifacts(run_id, path, str(folder)))
            for path in ("config.yaml", f"checkpoints/{which}.safetensors")
        )
    except (MlflowException, OSError) as error:
        raise UserError(
            f"run {on_one_line(run_id)} has no saved {which} checkpoint in this store; give the id of a run that "
            "msaccel finished, as MLflow shows it, and --tracking-uri where it is in another store."
        ) from error
    digest = inputs.dataset_inputs[0].dataset.digest if inputs and inputs.dataset_inputs else ""
    return SavedRun(config, weights, digest)
