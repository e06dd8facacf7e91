"""A run that does not finish says so truly, and keeps what it had logged."""

import os
import signal
import subprocess
from pathlib import Path

import pytest
from mlflow.entities import Run

from msaccel.checkpoint.resume_file import newest_first, read
from msaccel.launch.job_folder import RESUME, JobFolder
from tests.running import SMALL, Store, soak, wait_until

LONG = (
    "model=mlp", "data=synthetic", "data.train_size=340", "data.test_size=70", "train.epochs=100000",
    "train.eval_every=1000", "tracking.every=1",
)  # fmt: skip


def children(pid: int) -> list[int]:
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def logged(store: Store) -> int:
    """Log points of the only run so far."""
    runs = store.runs()
    return len(store.client.get_metric_history(runs[0].info.run_id, "train/loss")) if runs else 0


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().split(") ")[1][0] != "Z"
    except FileNotFoundError:
        return False


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL, *soak(signal.SIGTERM)])
def test_a_signal_ends_launcher_and_worker_and_keeps_the_curves(store: Store, number: signal.Signals) -> None:
    launcher = subprocess.Popen(store.command(*LONG), stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True)
    try:
        wait_until(lambda: logged(store) > 0)
        (worker,) = children(launcher.pid)
        launcher.send_signal(number)
        _, said = launcher.communicate(timeout=400)
        wait_until(lambda: not alive(worker))
    finally:
        launcher.kill()
    if number != signal.SIGKILL:
        assert launcher.returncode == 130
        name = "baseline s0"
        stopping = f"{name}: stopping after this update, with a checkpoint; Ctrl-C again stops at once\n"
        assert said == f"{stopping}interrupted; what was logged until then is kept\n"
    (run,) = store.runs()
    assert run.info.status == "KILLED"
    assert logged(store) > 0
    assert {"config.yaml", "curves.png"} <= store.artifacts(run)
    folder = JobFolder(Path(run.data.tags["job_folder"].split(":", 1)[1]))
    (kept,) = newest_first(folder.path / RESUME)
    update = read(kept).update
    assert update == max(step for step, _ in store.history(run)["train/loss"]), "the last one that was made"
    if number == signal.SIGTERM:
        goes_on_and_finishes(store, run, update)


WHILE_IT_LOGS = """
import os, signal, sys, time
clock = time.time_ns
def interrupting():
    caller = sys._getframe(1)
    if caller.f_code.co_name == "metrics" and caller.f_locals.get("update") == 1:
        os.kill(os.getpid(), signal.SIGUSR1)
    return clock()
time.time_ns = interrupting
"""


@pytest.mark.slow
def test_the_first_update_is_kept_if_the_signal_comes_while_it_is_logged(store: Store, tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text(WHILE_IT_LOGS)
    ended = store.run(*LONG, PYTHONPATH=str(tmp_path))
    assert ended.returncode == 1 and "baseline s0: interrupted" in ended.stderr
    (run,) = store.runs()
    folder = JobFolder(Path(run.data.tags["job_folder"].split(":", 1)[1]))
    assert [read(path).update for path in newest_first(folder.path / RESUME)] == [1]


def goes_on_and_finishes(store: Store, run: Run, update: int) -> None:
    """The interrupted job, resumed with a budget that it had not when it began."""
    ended = store.run("model=mlp", "data=synthetic", "resume=latest", f"train.max_updates={update + 5}")
    assert ended.returncode == 0, ended.stderr
    assert f"goes on after update {update}" in ended.stdout
    (finished,) = store.runs()
    assert (finished.info.run_id, finished.info.status) == (run.info.run_id, "FINISHED")
    losses = store.history(finished)["train/loss"]
    assert sorted(step for step, _ in losses) == list(range(1, update + 6)), "none missing, none twice"
    assert finished.data.tags["resumed_from"] == str(update)
    assert finished.data.tags["changed"] == f'{{"train.max_updates": "{update + 5}"}}'
    assert not JobFolder(Path(finished.data.tags["job_folder"].split(":", 1)[1])).path.exists()
    refused = store.run(f"resume={run.info.run_id}")
    assert refused.returncode == 2 and "has finished" in refused.stderr and len(refused.stderr.splitlines()) == 1


@pytest.mark.slow
def test_a_worker_that_is_killed_is_failed_by_its_launcher(store: Store) -> None:
    launcher = subprocess.Popen(store.command(*LONG), stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True)
    try:
        wait_until(lambda: logged(store) > 0)
        (worker,) = children(launcher.pid)
        os.kill(worker, signal.SIGKILL)
        _, said = launcher.communicate(timeout=400)
    finally:
        launcher.kill()
    assert launcher.returncode == 1
    assert "the worker was ended by SIGKILL" in said
    (run,) = store.runs()
    assert run.info.status == "FAILED"


@pytest.mark.slow
def test_a_gradient_that_is_not_finite_stops_the_job_with_a_sentence(store: Store) -> None:
    ended = store.run(*SMALL, "optimizer.lr=1e12", "tracking.every=4")
    assert ended.returncode == 1
    assert ended.stderr.startswith("baseline s0: the gradient of update ")
    assert "is not finite" in ended.stderr and "Traceback" not in ended.stderr
    (run,) = store.runs()
    assert run.info.status == "FAILED"
    update = int(ended.stderr.split("update ")[1].split(" ")[0])
    ((step, refused),) = store.history(run)["nonfinite/updates"]
    assert refused == 1 and step - 3 <= update <= step


@pytest.mark.slow
def test_with_skip_the_job_goes_on_and_counts(store: Store) -> None:
    ended = store.run(*SMALL, "optimizer.lr=1e12", "train.on_nonfinite=skip")
    assert ended.returncode == 0, ended.stderr
    (run,) = store.runs()
    assert store.history(run)["nonfinite/updates"][-1][1] > 0


def test_a_store_that_cannot_be_used_is_one_sentence(store: Store) -> None:
    (store.folder / "file").touch()
    ended = store.run(*SMALL, f"tracking.uri=sqlite:///{store.folder}/file/mlflow.db")
    assert ended.returncode == 1
    assert "tracking.uri=" in ended.stderr and len(ended.stderr.splitlines()) == 1


def test_a_deleted_experiment_is_one_sentence(store: Store) -> None:
    experiment = store.client.create_experiment("lenet-synthetic")
    store.client.delete_experiment(experiment)
    ended = store.run(*SMALL)
    assert ended.returncode == 1
    assert "tracking.experiment=lenet-synthetic was deleted" in ended.stderr and len(ended.stderr.splitlines()) == 1
