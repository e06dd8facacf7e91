"""What becomes of a job of a sweep that was broken off, wherever it was when it was killed."""

import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from msaccel.config import compose
from msaccel.config.run_name import run_name
from msaccel.errors import UserError
from msaccel.launch.job import Result, Task
from msaccel.launch.job_folder import RESUME, JobFolder
from msaccel.launch.rejoin import rejoin
from msaccel.launch.resume_changes import differences
from msaccel.schema import Config
from msaccel.tracking.start import start
from tests.running import Store

TASK = Task("none-cpu-s0", ["seed=0"], "a sweep", quiet=True)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Store:
    return Store(tmp_path_factory.mktemp("rejoin"))


@pytest.fixture
def wanted(place: Store, composed: Callable[..., Config]) -> Config:
    return composed("model=mlp", f"tracking.uri={place.uri}", f"tracking.artifacts={place.folder}/artifacts")


@pytest.fixture
def folder(wanted: Config, tmp_path: Path) -> JobFolder:
    """Of a job whose launcher has got as far as to start its process."""
    folder = JobFolder(tmp_path)
    decided = replace(wanted, device=replace(wanted.device, simulate="never"))
    compose.save(decided, folder.config)
    folder.assign(TASK)
    return folder


def begun(config: Config, folder: JobFolder) -> str:
    """Creates the job's run, as its process does; returns the id."""
    return start(config, run_name(config), TASK.sweep_id, folder.path).run_id


def says_so(folder: JobFolder, run_id: str) -> None:
    folder.write("run.json", {"run_id": run_id, "tracking_uri": ""})


def goes_on(config: Config, folder: JobFolder) -> Task:
    left = rejoin(config, folder, TASK)
    assert not isinstance(left, Result)
    return left[1]


def test_a_process_that_had_no_run_yet_leaves_a_new_one(wanted: Config, folder: JobFolder) -> None:
    assert goes_on(wanted, folder) == TASK
    assert not folder.is_assigned(), "and nothing in the folder"


def test_a_run_goes_on_whatever_its_status(wanted: Config, folder: JobFolder, place: Store) -> None:
    run_id = begun(wanted, folder)
    assert goes_on(wanted, folder) == replace(TASK, resume=run_id), "it had not even said that there is a run"
    says_so(folder, run_id)
    for status in ("RUNNING", "KILLED", "FAILED"):
        place.client.update_run(run_id, status=status)
        left = rejoin(wanted, folder, TASK)
        assert not isinstance(left, Result)
        assert left[1] == replace(TASK, resume=run_id)
        assert left[0].device.simulate == "never", "as it was decided when the run began"


def test_a_second_start_that_was_killed_early_does_not_lose_the_run(wanted: Config, folder: JobFolder) -> None:
    run_id = begun(wanted, folder)
    folder.assign(goes_on(wanted, folder))
    file = folder.path / "job.json"
    os.utime(file, (file.stat().st_mtime + 3600,) * 2)
    assert goes_on(wanted, folder).resume == run_id


def test_a_finished_run_is_left_alone_even_if_nobody_could_say_so(
    wanted: Config, folder: JobFolder, place: Store
) -> None:
    run_id = begun(wanted, folder)
    says_so(folder, run_id)
    place.client.set_terminated(run_id, "FINISHED")
    result = rejoin(wanted, folder, TASK)
    assert result == Result(TASK.name, "FINISHED", run_id, place.uri) == folder.result()


def test_a_run_that_was_deleted_is_trained_anew(wanted: Config, folder: JobFolder, place: Store) -> None:
    run_id = begun(wanted, folder)
    says_so(folder, run_id)
    (folder.path / RESUME).mkdir()
    (folder.path / RESUME / "checkpoint").touch()
    lock = folder.lock("launcher")
    place.client.delete_run(run_id)
    assert goes_on(wanted, folder) == TASK
    assert [path.name for path in folder.path.iterdir()] == ["launcher.lock"]
    lock.release()


@pytest.mark.parametrize("known", [True, False])
def test_checkpoints_stay_while_the_experiment_is_deleted(
    wanted: Config, folder: JobFolder, place: Store, known: bool
) -> None:
    """It can be restored, and its runs with it."""
    wanted = replace(wanted, tracking=replace(wanted.tracking, experiment=f"deleted-{known}"))
    compose.save(wanted, folder.config)
    run_id = begun(wanted, folder)
    if known:
        says_so(folder, run_id)
    (folder.path / RESUME).mkdir()
    (folder.path / RESUME / "checkpoint").touch()
    experiment = place.client.get_experiment_by_name(wanted.tracking.experiment)
    place.client.delete_experiment(experiment.experiment_id)
    with pytest.raises(UserError, match="was deleted in MLflow; restore it there"):
        rejoin(wanted, folder, TASK)
    assert (folder.path / RESUME / "checkpoint").exists()
    place.client.restore_experiment(experiment.experiment_id)
    assert goes_on(wanted, folder).resume == run_id


def test_another_job_than_it_was_is_refused_with_the_difference(
    wanted: Config, folder: JobFolder, composed: Callable[..., Config], place: Store
) -> None:
    says_so(folder, begun(wanted, folder))
    now = replace(wanted, seed=7)
    result = rejoin(now, folder, TASK)
    assert isinstance(result, Result) and result.status == "REFUSED"
    assert result.message.startswith("seed was 0 when the sweep began and would be 7 now; put it back, or ")


def test_what_may_change_is_recorded(wanted: Config, folder: JobFolder) -> None:
    run_id = begun(wanted, folder)
    folder.assign(replace(TASK, changed={"checkpoint.keep": "3"}))
    now = replace(wanted, checkpoint=replace(wanted.checkpoint, every_updates=5))
    task = goes_on(now, folder)
    assert task.resume == run_id
    assert task.changed == {"checkpoint.keep": "3", "checkpoint.every_updates": "5"}


def test_how_a_sweep_is_started_is_no_difference(wanted: Config, composed: Callable[..., Config]) -> None:
    now = replace(wanted, sweep=replace(wanted.sweep, resume=True, retries=3, job_timeout_s=5.0))
    assert differences(wanted, now) == ([], {})


def test_a_trial_that_was_lost_stays_lost(wanted: Config, folder: JobFolder) -> None:
    run_id = begun(wanted, folder)
    says_so(folder, run_id)
    lost = folder.finish(Result(TASK.name, "FAILED", run_id, message="not finite."))
    assert rejoin(wanted, folder, TASK, searched=True) == lost
    assert goes_on(wanted, folder).resume == run_id, "in any other sweep it is tried again"
    other = rejoin(replace(wanted, seed=7), folder, TASK, searched=True)
    assert isinstance(other, Result) and other.status == "REFUSED", "the search has chosen something else"
