"""A run as it was saved: its configuration and checkpoint, read back from MLflow and scored."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from mlflow.exceptions import MlflowException

from msaccel import checkpoint, compose
from msaccel.build import build_network
from msaccel.errors import UserError
from msaccel.evaluate import Evaluator, Score
from msaccel.job import load_data, prepare_device
from msaccel.tracking.store import open_store


def evaluate_run(tracking_uri: str, run_id: str, which: str) -> Score:
    """Scores a run's `last` or `best` checkpoint on the whole test set of its configuration.

    Raises:
        UserError: there is no such run, or it saved no such checkpoint.
    """
    client = open_store(tracking_uri)
    compose.register()
    with tempfile.TemporaryDirectory() as folder:
        try:
            client.get_run(run_id)
            config_file = client.download_artifacts(run_id, "config.yaml", folder)
            weights = client.download_artifacts(run_id, f"checkpoints/{which}.safetensors", folder)
        except (MlflowException, OSError) as error:
            raise UserError(
                f"run {run_id} has no saved {which} checkpoint in this store; give the id of a run that msaccel "
                "finished, as MLflow shows it, and --tracking-uri where it is in another store."
            ) from error
        config = compose.load(Path(config_file))
        os.environ.setdefault("GLOG_v", "3")
        prepare_device(config.device, config.seed)
        network = build_network(config)
        checkpoint.read(Path(weights), network.get_parameters())
        return Evaluator(network)(load_data(config).test)
