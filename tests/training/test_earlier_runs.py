"""Artifacts of earlier runs: fetched, not there, or in a store that does not answer."""

from pathlib import Path
from unittest.mock import Mock

import pytest
from mlflow import MlflowClient
from mlflow.exceptions import MlflowException

from msaccel.errors import TrackingError
from msaccel.training import earlier_runs
from msaccel.training.earlier_runs import download


@pytest.fixture
def uri(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/mlflow.db"


def test_a_folder_of_a_run_is_fetched_and_what_is_not_there_is_none(tmp_path: Path, uri: str) -> None:
    client = MlflowClient(uri)
    run_id = client.create_run(client.create_experiment("e", f"file://{tmp_path}/artifacts")).info.run_id
    client.log_text(run_id, "text", "method/snapshots/1.txt")
    client.log_text(run_id, "text", "top.txt")
    found, top = (download(uri, run_id, path, tmp_path / "job") for path in ("method/snapshots", "top.txt"))
    assert [path.name for path in found.iterdir()] == ["1.txt"] and top.read_text() == "text"
    assert download(uri, run_id, "method/others", tmp_path / "job") is None
    assert download(uri, "0" * 32, "method/snapshots", tmp_path / "job") is None


@pytest.mark.parametrize(
    "error", [MlflowException("the store is away"), ConnectionError("refused"), OSError(28, "full")]
)
def test_a_store_that_does_not_answer_is_not_taken_for_one_without_the_artifact(
    tmp_path: Path, uri: str, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    """The job ended with "has no snapshots in this store; write the id of a run with accel=dimreduce"."""
    monkeypatch.setattr("msaccel.tracking.retry.SECONDS_BETWEEN_TRIES", 1e9)  # no second try
    monkeypatch.setattr(earlier_runs, "open_store", lambda uri: Mock(list_artifacts=Mock(side_effect=error)))
    with pytest.raises(TrackingError, match="method/snapshots of run abc cannot be fetched from MLflow"):
        download(uri, "abc", "method/snapshots", tmp_path)
