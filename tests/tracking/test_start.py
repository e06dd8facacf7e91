"""The beginning of a run: its name and its tags."""

from pathlib import Path

import pytest

from msaccel.config.compose import from_overrides
from msaccel.config.run_name import run_name
from msaccel.tracking import provenance
from msaccel.tracking.start import start
from msaccel.tracking.status import OUR_TAGS


def test_a_run_has_the_users_name_and_tags_beside_ours(tmp_path: Path) -> None:
    store = [f"tracking.uri=sqlite:///{tmp_path}/mlflow.db", f"tracking.artifacts={tmp_path}/files"]
    config = from_overrides([*store, "tracking.name='my run'", "+tracking.tags.purpose=teaching", "tracking.note=why"])
    run = start(config, run_name(config), "a sweep", tmp_path)
    found = run.client.get_run(run.run_id)
    assert found.info.run_name == "my run"
    ours = {key for key in found.data.tags if not key.startswith("mlflow.")}
    assert found.data.tags["mlflow.note.content"] == "why"
    assert found.data.tags["purpose"] == "teaching" and ours - {"purpose"} <= OUR_TAGS


@pytest.mark.parametrize(
    ("begun", "now"),
    [("a1", "a1-dirty"), ("a1-dirty", "a1-dirty"), ("unknown", "unknown")],
    ids=["another commit", "was dirty", "outside of git"],
)
def test_a_run_that_other_code_goes_on_with_says_so(
    tmp_path: Path, begun: str, now: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """No repository has a commit of that name."""
    config = from_overrides([f"tracking.uri=sqlite:///{tmp_path}/mlflow.db", f"tracking.artifacts={tmp_path}/files"])
    run = start(config, "baseline s0", "", tmp_path)
    run.tag(git_commit=begun)
    resumed = start(config, "baseline s0", "", tmp_path, resume=run.run_id)
    assert resumed.client.get_run(run.run_id).data.tags["git_commit"] == now
    assert ("goes on with other code" in capsys.readouterr().err) == (begun != now)


def test_a_run_that_the_same_code_goes_on_with_keeps_its_commit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        provenance, "_git", lambda *arguments: "" if arguments[0] in ("diff", "status") else f"{20 * 'a1'}\n"
    )
    provenance.git_commit.cache_clear()
    config = from_overrides([f"tracking.uri=sqlite:///{tmp_path}/mlflow.db", f"tracking.artifacts={tmp_path}/files"])
    run = start(config, "baseline s0", "", tmp_path)
    start(config, "baseline s0", "", tmp_path, resume=run.run_id)
    assert run.client.get_run(run.run_id).data.tags["git_commit"] == 20 * "a1"
    provenance.git_commit.cache_clear()
