"""What would wait for ever ends with a sentence, and stores lie in folders of any name."""

import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from msaccel import files
from msaccel.errors import TrackingError, UserError
from msaccel.launch.job_folder import JobFolder
from msaccel.launch.outcome import record
from msaccel.tracking import store as module
from msaccel.tracking.mlflow_run import Run
from msaccel.tracking.start import start
from msaccel.tracking.store import connect, open_experiment, open_store
from tests.running import SMALL, Store
from tests.sweeps.test_folder import held_elsewhere

ODD = "a?b#c%20d e"


def test_a_lock_that_stays_held_is_named_and_given_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(files, "_SECONDS_IN_SILENCE", 0.1)
    monkeypatch.setattr(module, "locked", lambda path: files.locked(path, 0.2))
    lock = tmp_path / "mlflow.db.lock"
    with held_elsewhere(tmp_path, "mlflow.db") as holder:
        with pytest.raises(UserError) as raised:
            open_store(f"sqlite:///{tmp_path}/mlflow.db")
        who = f"process {holder.pid}" if sys.platform == "linux" else "another process"
        assert str(raised.value) == f"{lock} was held by {who} for 0.2 s; end that, or wait for it."
        assert capsys.readouterr().err == f"waiting up to 0.2 s for {lock}, which {who} holds\n"
    assert open_store(f"sqlite:///{tmp_path}/mlflow.db").search_experiments()


def test_a_store_in_a_folder_of_any_name(
    tmp_path: Path, make_store: Callable[[Path], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_make", make_store)
    uri = f"sqlite:///{tmp_path}/{ODD}/mlflow.db"
    client = open_store(uri)
    made = open_experiment(client, "lenet-mnist", f"{tmp_path}/{ODD}/artifacts")
    with Run(client, client.create_run(made.experiment_id).info.run_id) as run:
        run.metrics(1, {"train/loss": 0.5})
        run.text("config.yaml", "seed: 0")
    assert [file.name for file in (tmp_path / ODD).glob("mlflow.db")] == ["mlflow.db"]
    assert [path.name for path in tmp_path.iterdir()] == [ODD]
    again = connect(uri)
    assert again.get_run(run.run_id).info.status == "FINISHED"
    assert Path(again.download_artifacts(run.run_id, "config.yaml")).read_text() == "seed: 0"


def test_a_store_that_was_removed_promises_no_resume(tmp_path: Path, composed, monkeypatch: pytest.MonkeyPatch) -> None:
    uri = f"sqlite:///{tmp_path}/mlflow.db"
    config = composed(f"tracking.uri={uri}", f"tracking.artifacts={tmp_path}/artifacts", *SMALL)
    run = start(config, "none-cpu-s0", "", tmp_path)
    (tmp_path / "mlflow.db").unlink()
    with pytest.raises(TrackingError) as raised, run:
        run.metrics(1, {"train/loss": 0.5})
    assert str(raised.value) == (
        f"metrics could not be saved in MLflow (1 points, {tmp_path}/mlflow.db was removed); run {run.run_id} is not "
        "in the store any more, so start a new job."
    )
    JobFolder(tmp_path).write("run.json", {"run_id": run.run_id, "tracking_uri": uri})
    assert record(JobFolder(tmp_path), "none-cpu-s0", "FAILED", "so").run_id == "", "then the launcher advises nothing"
    assert not (tmp_path / "mlflow.db").exists(), "it is not made again"


@pytest.mark.slow
def test_a_second_job_in_a_folder_is_refused_before_the_first_has_written_anything(store: Store) -> None:
    folder = store.folder / "job"
    folder.mkdir()
    with held_elsewhere(folder, "launcher"):
        refused = store.run(*SMALL, f"hydra.run.dir={folder}")
    assert refused.returncode == 2
    assert refused.stderr == f"hydra.run.dir={folder} is in use by a job that runs; write another hydra.run.dir.\n"
    assert [path.name for path in folder.iterdir()] == ["launcher.lock"] and store.runs() == []


@pytest.mark.slow
def test_a_job_whose_folders_have_odd_names(store: Store) -> None:
    inside = Store(store.folder / ODD)
    inside.folder.mkdir()
    uri, jobs = f"'sqlite:///{inside.folder}/mlflow.db'", f"'{inside.folder}/jobs/one'"
    artifacts = f"'{inside.folder}/artifacts'"
    command = (f"tracking.uri={uri}", f"tracking.artifacts={artifacts}", f"hydra.run.dir={jobs}", *SMALL, "model=mlp")
    ended = store.run(*command)
    assert ended.returncode == 0, ended.stderr
    (run,) = inside.runs()
    assert "checkpoints/last.safetensors" in inside.artifacts(run, "checkpoints")
