"""MLflow's store: where an experiment keeps its artifacts."""

from pathlib import Path

import pytest

from msaccel.errors import UserError
from msaccel.tracking.store import experiment_id, local_path, must_keep_artifacts_in, open_store


@pytest.mark.parametrize("name", ["plain", "a b", "a?b#c%20d", "ä"])
def test_an_artifact_location_names_its_folder(tmp_path: Path, name: str) -> None:
    assert local_path((tmp_path / name).as_uri()) == tmp_path / name
    assert local_path("s3://bucket/folder") is None


def test_another_place_for_artifacts_than_the_experiment_has_is_refused(tmp_path: Path) -> None:
    """As after a repository was moved: MLflow would go on writing into the old place."""
    client, old, new = open_store(f"sqlite:///{tmp_path}/mlflow.db"), tmp_path / "old files", tmp_path / "new"
    experiment = experiment_id(client, "lenet-mnist", str(old))
    must_keep_artifacts_in(str(old), client, experiment)
    with pytest.raises(UserError, match=f"write tracking.artifacts={old} or another tracking.experiment"):
        must_keep_artifacts_in(str(new), client, experiment)
