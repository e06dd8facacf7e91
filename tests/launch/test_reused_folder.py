"""A folder that an earlier job has left: no other job starts in it, and nothing removes the job's checkpoints."""

import errno
import os
import signal
import time
from collections.abc import Callable
from pathlib import Path
from unittest.mock import Mock

import pytest
from omegaconf import OmegaConf

from msaccel.cli.run import claim
from msaccel.errors import UserError
from msaccel.launch import launcher
from msaccel.launch.job import Result, Task
from msaccel.launch.job_folder import JobFolder
from msaccel.launch.lost_with_folder import lost_with
from msaccel.schema import Config
from msaccel.tracking.status import FAILED
from tests.running import Store

JOB = (
    "data=synthetic", "data.train_size=336", "data.test_size=70", "train.epochs=200", "train.eval_every=200",
    "tracking.every=100", "checkpoint.every_updates=20",
)  # fmt: skip


@pytest.fixture(scope="module")
def left(tmp_path_factory: pytest.TempPathFactory) -> tuple[Store, Path]:
    """A store, and the folder of a job in it that was interrupted after a checkpoint."""
    store = Store(tmp_path_factory.mktemp("reused"))
    folder = store.folder / "job"
    process = store.start(*JOB, f"hydra.run.dir={folder}")
    try:
        while not list(folder.glob("resume/*.safetensors")):
            assert process.poll() is None, "it has ended before its first checkpoint"
            time.sleep(0.05)
        process.send_signal(signal.SIGINT)
        assert process.wait(120) == 130
    finally:
        process.kill()
    return store, folder


@pytest.mark.slow
@pytest.mark.parametrize(
    ("more", "said"),
    [((), "resume={}"), (("seed=1",), "resume={}"), (("seed=-1",), "resume={}"), (("optimizer.lr=oops",), "a number")],
)
def test_no_other_job_starts_there(left: tuple[Store, Path], more: tuple[str, ...], said: str) -> None:
    store, folder = left
    before = sorted(folder.rglob("*"))
    ended = store.run(*JOB, *more, f"hydra.run.dir={folder}")
    assert ended.returncode == 2 and len(ended.stderr.splitlines()) == 1, ended.stderr
    (run,) = store.runs()
    assert said.format(run.info.run_id) in ended.stderr
    assert sorted(folder.rglob("*")) == before and len(store.runs()) == 1


@pytest.mark.parametrize("name", ["config.yaml", "job.json"])
def test_a_full_disk_leaves_nothing_of_a_job_that_did_not_start(
    composed: Callable[..., Config], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    replace = os.replace

    def full(source: Path, target: Path) -> None:
        if target.name == name:
            raise OSError(errno.ENOSPC, "No space left on device")
        replace(source, target)

    monkeypatch.setattr(os, "replace", full)
    folder = JobFolder(tmp_path / "job")
    folder.path.mkdir()
    with pytest.raises(OSError, match="No space left"):
        launcher.run(composed("data=synthetic"), folder, Task("job"))
    assert not folder.path.exists()


def test_a_full_disk_takes_nothing_from_a_job_that_is_resumed(
    composed: Callable[..., Config], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = JobFolder(tmp_path)
    folder.config.write_text("as it was")
    folder.assign(Task("job"))
    monkeypatch.setattr(os, "replace", Mock(side_effect=OSError(errno.ENOSPC, "No space left on device")))
    with pytest.raises(OSError, match="No space left"):
        launcher.run(composed("data=synthetic"), folder, Task("job", resume="abc"))
    assert folder.config.read_text() == "as it was" and folder.task() == Task("job")


@pytest.mark.slow
@pytest.mark.parametrize("change", ["optimizer={lr:0.5}", "++optimizer.lr=0.5", "++optimizer={lr:0.5}"])
def test_a_change_is_refused_however_it_is_written(left: tuple[Store, Path], change: str) -> None:
    store, folder = left
    before = sorted(folder.rglob("*"))
    ended = store.run(f"resume={store.runs()[0].info.run_id}", change, f"hydra.run.dir={folder}")
    assert ended.returncode == 2 and "optimizer.lr: 0.01 → 0.5" in ended.stderr, ended.stderr
    assert sorted(folder.rglob("*")) == before, "the folder named is the run's own, and stays"


@pytest.mark.slow
def test_a_change_that_the_worker_refuses_is_not_kept(left: tuple[Store, Path]) -> None:
    """It stayed in the job's settings and in MLflow, so that the next resume failed, too."""
    store, folder = left
    before, (run,) = {path: path.read_text() for path in (folder / "config.yaml", folder / "job.json")}, store.runs()
    ended = store.run(f"resume={run.info.run_id}", "train.max_updates=1", "tracking.note=hurry")
    assert ended.returncode == 1 and "train.max_updates" in ended.stderr, ended.stderr
    assert {path: path.read_text() for path in before} == before and not list(folder.glob("before-resume*"))
    (now,) = store.runs()
    told = ("changed", "resumes", "resumed_from", "mlflow.note.content")
    assert now.info.status == "FAILED" and [now.data.tags.get(tag) for tag in told] == [None] * len(told)


def test_settings_of_a_resume_that_was_killed_before_it_began_are_put_back(tmp_path: Path) -> None:
    folder, task = JobFolder(tmp_path), Task("job", ["seed=1"])
    folder.config.write_text("as it was")
    folder.assign(task)
    for accepted in (False, True):
        folder.keep_settings()
        folder.config.write_text("changed")
        folder.assign(Task("job", changed={"data.root": "/typo"}))
        if accepted:
            folder.accept_settings()
        folder.restore_settings()
        folder.restore_settings()
        assert folder.config.read_text() == ("changed" if accepted else "as it was")
        assert (folder.task() == task) is not accepted
        assert sorted(path.name for path in tmp_path.iterdir()) == ["config.yaml", "job.json"]


@pytest.mark.slow
def test_a_job_that_had_no_run_leaves_the_folder_free(tmp_path: Path) -> None:
    store, folder = Store(tmp_path), JobFolder(tmp_path / "job")
    job = [*JOB, "train.epochs=1", "checkpoint.every_updates=1000", f"hydra.run.dir={folder.path}"]
    failed = store.run(*job, "tracking.uri=gopher://127.0.0.1")
    assert failed.returncode == 1 and not folder.path.exists(), failed.stderr
    folder.path.mkdir()
    folder.assign(Task("none-cpu-s0"))
    folder.finish(Result("none-cpu-s0", FAILED, message="the worker crashed", crashed=True))
    ended = store.run(*job)
    assert ended.returncode == 0, ended.stderr


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("result.json", "[1, 2]"),
        ("result.json", '{"accuracy": 0.98}'),
        ("result.json", '{"name": "a", "status": "FAILED"}'),
        ("result.json", "{"),
        ("job.json", "{"),
        ("job.json", "[" * 100_000),
        ("job.json", '{"image": "python:3.11"}'),
        ("job.json", '{"name": "a", "overrides": [1]}'),
        ("job.json", '{"name": "a", "changed": ["seed"]}'),
        ("job.json", '{"name": null}'),
        ("multirun.yaml", "hydra: {}"),
        ("sweep.json", "[]"),
        ("sweep.json", '{"method": "bayes"}'),
        ("launcher.lock", ""),
        ("config.yaml", "model: gpt"),
    ],
)
def test_a_folder_of_another_program_stays_as_it_is(tmp_path: Path, name: str, content: str) -> None:
    (tmp_path / name).write_text(content)
    (tmp_path / "thesis.txt").write_text("two years")
    with pytest.raises(UserError, match="holds other files; write a folder that is new or empty"):
        claim(JobFolder(tmp_path), resumes=False)
    assert {path.name for path in tmp_path.iterdir()} == {name, "thesis.txt"}


@pytest.mark.parametrize("name", ["job.json", "result.json", "run.json", "sweep.json"])
def test_a_pipe_in_place_of_a_file_is_not_waited_for(tmp_path: Path, name: str) -> None:
    os.mkfifo(tmp_path / name)
    with pytest.raises(UserError, match="holds other files"):
        claim(JobFolder(tmp_path), resumes=False)


@pytest.mark.parametrize("damaged", ["result.json", "run.json"])
@pytest.mark.parametrize("content", ["{", "[]", '{"a": 1}', "\ud800"])
def test_a_damaged_file_of_a_job_is_none(tmp_path: Path, damaged: str, content: str) -> None:
    folder = JobFolder(tmp_path)
    folder.assign(Task("none-cpu-s0"))
    (tmp_path / damaged).write_bytes(content.encode(errors="surrogatepass"))
    with pytest.raises(UserError, match="holds a job that has not finished"):
        claim(folder, resumes=False)


def test_the_folder_of_a_killed_start_is_free(tmp_path: Path) -> None:
    (tmp_path / "launcher.lock").touch()
    lock = claim(JobFolder(tmp_path), resumes=False)
    assert lock
    lock.release()


def test_a_link_goes_with_the_folder_that_it_leads_to(tmp_path: Path) -> None:
    (tmp_path / "disk").mkdir()
    link = tmp_path / "job"
    link.symlink_to(tmp_path / "disk")
    JobFolder(link).discard()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("store", "named"),
    [
        ({"tracking.uri": "sqlite:///{out}/mlflow.db"}, "tracking.uri"),
        ({"tracking.uri": "sqlite:///out/deep/mlflow.db"}, "tracking.uri"),
        ({"tracking.artifacts": "{out}/artifacts"}, "tracking.artifacts"),
        ({"data.cache": "{out}"}, "data.cache"),
        ({}, "the current folder"),
        ({"tracking.uri": "sqlite:///{out}-too/mlflow.db", "tracking.artifacts": "{out}2", "data.cache": "/c"}, ""),
    ],
)
def test_a_folder_that_holds_what_must_stay_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, store: dict[str, str], named: str
) -> None:
    """When a job has finished its folder is removed, and took the store with it."""
    out = tmp_path / "out"
    (out / "inside").mkdir(parents=True)
    monkeypatch.chdir(out / "inside" if named == "the current folder" else tmp_path)
    config = OmegaConf.create(
        {"tracking": {"uri": "http://host:5000", "artifacts": "/elsewhere"}, "data": {"cache": "~/.cache/msaccel"}}
    )
    for key, value in store.items():
        OmegaConf.update(config, key, value.format(out=out))
    (tmp_path / "link").symlink_to(out)
    for folder in (out, tmp_path / "link", Path(os.path.relpath(out))):
        said = lost_with("hydra.run.dir", folder, config)
        assert said.startswith(f"hydra.run.dir={folder} has {named}") and "\n" not in said if named else said == ""


@pytest.mark.slow
@pytest.mark.parametrize("typed", [("hydra.run.dir=.",), ("-m", "seed=0,1", "hydra.sweep.dir=")], ids=["job", "sweep"])
def test_the_current_folder_is_no_folder_of_a_job(tmp_path: Path, typed: tuple[str, ...]) -> None:
    store = Store(tmp_path)
    (store.folder / "thesis.txt").write_text("two years")
    ended = store.run("model=mlp", "data=synthetic", *typed)
    assert ended.returncode == 2 and "has the current folder in it" in ended.stderr, ended.stderr
    assert [path.name for path in store.folder.iterdir()] == ["thesis.txt"]
