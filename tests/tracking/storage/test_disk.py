"""A disk that is full or cannot be written: training goes on where it can, and says in a sentence what it could not."""

import resource
from collections.abc import Callable
from pathlib import Path

import pytest

from msaccel.config.run_name import run_name
from msaccel.errors import TrackingError, UserError
from msaccel.launch.job import Result
from msaccel.launch.job_folder import JobFolder
from msaccel.tracking import retry
from msaccel.tracking.mlflow_run import Run
from msaccel.tracking.start import start
from tests.running import SMALL, Store
from tests.tracking.storage.conftest import Disk
from tests.tracking.storage.servers import MlflowServer, job

# 22 updates of LeNet, whose checkpoints take half a megabyte.
JOB = (*SMALL, "tracking.every=1", "checkpoint.every_updates=4")


def in_folder(folder: Path) -> str:
    return f"hydra.run.dir={folder}/job"


def must_have_all(store: Store) -> None:
    (run,) = store.runs()
    assert run.info.status == "FINISHED"
    history = store.history(run)
    assert [update for update, _ in sorted(history["train/loss"])] == list(range(1, 23))
    assert [update for update, _ in sorted(history["eval/loss"])] == [11, 22]
    assert len(history["final/accuracy"]) == 1
    assert {"checkpoints/last.safetensors", "checkpoints/best.safetensors"} <= store.artifacts(run, "checkpoints")


@pytest.mark.slow
def test_a_full_disk_ends_the_job_with_a_sentence_and_room_lets_it_go_on(
    store: Store, disk: Callable[[int], Disk]
) -> None:
    small = disk(700)
    ended = store.run(*JOB, in_folder(small.folder))
    assert ended.returncode == 1
    lines = ended.stderr.splitlines()
    assert "Traceback" not in ended.stderr
    assert any(
        line.startswith("the resume checkpoint of update 8 could not be written (No space left") for line in lines
    )
    assert any("last.safetensors of update 11 could not be written (No space left on device)" in line for line in lines)
    assert lines[-1] == (
        f"baseline s0: {small.folder}/job/last.safetensors could not be written or read "
        "(No space left on device); make room or allow it."
    )
    (run,) = store.runs()
    assert run.info.status == "FAILED"
    assert [update for update, _ in store.history(run)["train/loss"]] == list(range(1, 23)), "MLflow's disk has room"
    small.again("size=64m")
    ended = store.run(f"resume={run.info.run_id}")
    assert ended.returncode == 0, ended.stderr
    must_have_all(store)


@pytest.mark.soak
def test_a_limit_of_file_sizes_does_the_same(tmp_path: Path) -> None:
    """For machines where nothing can be mounted; the store is another process's."""

    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (300_000, 300_000))

    server = MlflowServer(tmp_path)
    server.start()
    try:
        ended = job(server, *JOB, preexec_fn=limit)
        _, said = ended.communicate(timeout=300)
        (run,) = server.runs()
        assert ended.returncode == 1 and "Traceback" not in said
        assert "last.safetensors could not be written or read (File too large)" in said
        assert server.steps(run)["train/loss"] == list(range(1, 23))
    finally:
        server.stop()


def begun(store: Store, composed: Callable, uri: str, artifacts: Path) -> Run:
    config = composed("data=synthetic", f"tracking.uri={uri}", f"tracking.artifacts={artifacts}")
    return start(config, run_name(config), "", store.folder / "job")


def test_metrics_wait_for_room_in_the_store(
    store: Store, disk: Callable[[int], Disk], composed: Callable, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(retry, "SECONDS_BETWEEN_TRIES", 0.05)
    small = disk(4096)
    uri = f"sqlite:///{small.folder}/mlflow.db"
    run = begun(store, composed, uri, store.folder)
    run.metrics(1, {"lr": 0.1})
    run.flush()
    filler = small.fill()
    for update in range(2, 1501):
        run.metrics(update, {"lr": 0.1})
        if update % 500 == 0:
            run.flush()
    assert len(run.unflushed()) == 1499
    filler.unlink()
    small.again("size=64m")
    run.end("FINISHED")
    found = run.client.get_metric_history(run.run_id, "lr")
    assert sorted(point.step for point in found) == list(range(1, 1501))
    assert run.client.get_run(run.run_id).info.status == "FINISHED"


def test_a_store_in_a_read_only_folder_is_one_sentence(store: Store, read_only: Path, composed: Callable) -> None:
    with pytest.raises(UserError, match=r"^tracking.uri=sqlite:.* cannot be used \(.*\); write another one\.$"):
        begun(store, composed, f"sqlite:///{read_only}/mlflow.db", store.folder)


def test_artifacts_in_a_read_only_folder_are_one_sentence(store: Store, read_only: Path, composed: Callable) -> None:
    run = begun(store, composed, store.uri, read_only)
    with pytest.raises(TrackingError, match=r"^config.yaml could not be saved in MLflow \(.*Read-only|Permission"):
        run.text("config.yaml", "seed: 0")


@pytest.mark.slow
def test_jobs_in_a_read_only_folder_are_refused_in_one_sentence(store: Store, read_only: Path) -> None:
    ended = store.run(*SMALL, f"hydra.run.dir={read_only}/job")
    assert ended.returncode == 2
    assert len(ended.stderr.splitlines()) == 1 and f"{read_only}/job could not be written" in ended.stderr


def test_jobs_where_a_file_is_in_the_way_are_refused_in_one_sentence(store: Store) -> None:
    (store.folder / "file").touch()
    ended = store.run(*SMALL, f"hydra.run.dir={store.folder}/file/job")
    assert ended.returncode == 2
    assert len(ended.stderr.splitlines()) == 1 and "Not a directory" in ended.stderr


def test_a_result_without_room_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from msaccel.launch.outcome import record

    folder = JobFolder(tmp_path / "gone")
    assert record(folder, "none-cpu-s0", "FAILED", "why") == Result("none-cpu-s0", "FAILED", message="why")
    assert capsys.readouterr().err.startswith("none-cpu-s0: how it ended is not in ")
