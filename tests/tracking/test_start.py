"""The beginning of a run: its name and its tags."""

from pathlib import Path

from msaccel.config.compose import from_overrides
from msaccel.config.run_name import run_name
from msaccel.tracking.start import start
from msaccel.tracking.status import OUR_TAGS


def test_a_run_has_the_users_name_and_tags_beside_ours(tmp_path: Path) -> None:
    store = [f"tracking.uri=sqlite:///{tmp_path}/mlflow.db", f"tracking.artifacts={tmp_path}/files"]
    config = from_overrides([*store, "tracking.name='my run'", "+tracking.tags.purpose=teaching", "tracking.note=why"])
    run = start(config, "none", run_name(config), "a sweep", tmp_path)
    found = run.client.get_run(run.run_id)
    assert found.info.run_name == "my run"
    ours = {key for key in found.data.tags if not key.startswith("mlflow.")}
    assert found.data.tags["mlflow.note.content"] == "why"
    assert found.data.tags["purpose"] == "teaching" and ours - {"purpose"} <= OUR_TAGS
