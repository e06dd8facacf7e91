"""How a job ended is recorded in its folder and in MLflow."""

from pathlib import Path

import pytest

from msaccel.launch.job_folder import JobFolder
from msaccel.launch.outcome import record
from tests.running import Store


@pytest.fixture
def folder(store: Store, tmp_path: Path) -> JobFolder:
    """Of a job whose run is RUNNING in MLflow."""
    run = store.client.create_run(store.client.create_experiment("of the test"))
    made = JobFolder(tmp_path / "job")
    made.path.mkdir()
    made.write("run.json", {"run_id": run.info.run_id, "tracking_uri": store.uri})
    return made


def status(store: Store, folder: JobFolder) -> str:
    return store.client.get_run(folder.mlflow_run()[0]).info.status


def test_a_job_that_ended_before_its_run_did_is_failed_in_both(store: Store, folder: JobFolder) -> None:
    result = record(folder, "baseline s0", "FAILED", "the worker was ended by SIGKILL", crashed=True)
    assert (result.status, result.crashed) == ("FAILED", True)
    assert folder.result() == result and status(store, folder) == "FAILED"


@pytest.mark.parametrize("ended", ["FAILED", "KILLED"])
def test_a_run_that_has_finished_stays_finished(
    store: Store, folder: JobFolder, ended: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its process was killed while it compared the run with others, or removed its checkpoints."""
    store.client.set_terminated(folder.mlflow_run()[0], "FINISHED")
    result = record(folder, "baseline s0", ended, "the worker was ended by SIGKILL", crashed=True)
    assert (result.status, result.message, result.crashed) == ("FINISHED", "", False)
    assert folder.result() == result and status(store, folder) == "FINISHED"
    assert capsys.readouterr().err == "baseline s0: had finished already (the worker was ended by SIGKILL)\n"
