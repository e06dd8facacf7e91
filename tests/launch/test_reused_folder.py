"""A folder that an earlier job has left: no other job starts in it, and nothing removes the job's checkpoints."""

import signal
import subprocess
import time
from pathlib import Path

import pytest

from msaccel.launch.job_folder import JobFolder, Result, Task
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
    command = store.command(*JOB, f"hydra.run.dir={folder}")
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
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


@pytest.mark.slow
@pytest.mark.parametrize("change", ["optimizer={lr:0.5}", "++optimizer.lr=0.5", "++optimizer={lr:0.5}"])
def test_a_change_is_refused_however_it_is_written(left: tuple[Store, Path], change: str) -> None:
    store, folder = left
    before = sorted(folder.rglob("*"))
    ended = store.run(f"resume={store.runs()[0].info.run_id}", change, f"hydra.run.dir={folder}")
    assert ended.returncode == 2 and "optimizer.lr: 0.01 → 0.5" in ended.stderr, ended.stderr
    assert sorted(folder.rglob("*")) == before, "the folder named is the run's own, and stays"


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
