"""A sweep that is killed and started again ends with the runs of an undisturbed one: each job's once, and complete."""

import os
import random
import signal
import subprocess
import time
from collections.abc import Callable
from contextlib import suppress

import psutil
import pytest
from mlflow.entities import Run

from tests.running import SMALL, Store, wait_until

JOB = (*SMALL, "model=mlp", "checkpoint.every_updates=2")
History = dict[str, list[tuple[int, float]]]


def history(store: Store, run: Run) -> History:
    """Every metric's points but for times, sorted: those that were lost come into MLflow after later ones."""
    return {name: sorted(points) for name, points in store.history(run).items()}


def kill_when(store: Store, condition: Callable[[], bool], *overrides: str) -> bool:
    """Starts a sweep, and kills it with all its processes at once, as when a machine goes down.

    Returns:
        Whether it was still at work.
    """
    sweep = store.start("-m", *overrides)
    everything = [psutil.Process(sweep.pid)]
    try:
        end = time.monotonic() + store.timeout
        while not condition() and sweep.poll() is None:
            assert time.monotonic() < end
            time.sleep(0.002)
        if at_work := sweep.poll() is None:
            everything += everything[0].children(recursive=True)
    finally:
        for process in everything:
            with suppress(psutil.NoSuchProcess):
                process.send_signal(signal.SIGKILL)
        sweep.wait()
    return at_work


@pytest.mark.slow
def test_a_killed_sweep_goes_on(store: Store, tmp_path_factory: pytest.TempPathFactory) -> None:
    checkpoint = "jobs/*/1/resume/update-0000000006.*.safetensors"
    sweep = (*JOB, "seed=0,1,2", "sweep.resume=true")
    assert kill_when(store, lambda: bool(list(store.folder.glob(checkpoint))), *sweep)
    before = store.runs()
    assert [run.info.status for run in before] == ["FINISHED", "RUNNING"]
    kept = sorted(file.name for file in store.folder.glob(checkpoint.replace("update-0000000006", "update-*")))
    last = int(kept[-1].split(".")[0].removeprefix("update-"))  # the job may have gone on before it was killed

    ended = store.run("-m", *sweep)
    assert ended.returncode == 0, ended.stderr
    assert "goes on: 1 of the 2 jobs that were begun have finished" in ended.stdout
    runs = store.runs()
    assert [run.info.status for run in runs] == ["FINISHED"] * 3
    assert [run.info.run_id for run in runs[:2]] == [run.info.run_id for run in before]
    assert {run.data.params["seed"] for run in runs} == {"0", "1", "2"}
    assert len({run.data.tags["sweep_id"] for run in runs}) == 1
    assert [run.data.tags.get("resumed_from") for run in runs] == [None, str(last), None]
    assert runs[0].info.end_time == before[0].info.end_time, "a finished job is left alone"
    assert [line.split()[:2] for line in ended.stdout.splitlines() if line.startswith("  none")] == [["none", "3"]]

    undisturbed = Store(tmp_path_factory.mktemp("undisturbed"))
    assert undisturbed.run(*JOB, "seed=1").returncode == 0
    assert history(store, runs[1]) == history(undisturbed, undisturbed.runs()[0])

    again = store.run("-m", *sweep)
    assert again.returncode == 0 and "has finished; " in again.stdout and len(store.runs()) == 3
    assert [path.name for path in store.folder.glob("jobs/*/*")] == ["sweep.json"]


@pytest.mark.soak
def test_jobs_of_joblib_end_with_the_sweep_and_no_further_one_begins(store: Store) -> None:
    long = ("data=synthetic", "train.epochs=100000", "train.eval_every=1000", "model=mlp", "seed=0,1,2,3,4,5")
    sweep = subprocess.Popen(store.command("-m", "hydra/launcher=joblib", *long), stdout=subprocess.DEVNULL)
    try:
        wait_until(lambda: len(store.runs()) == 2)
        everything = psutil.Process(sweep.pid).children(recursive=True)
    finally:
        sweep.kill()
        sweep.wait()
    wait_until(lambda: not any(process.is_running() for process in everything))
    assert [run.info.status for run in store.runs()] == ["KILLED", "KILLED"]
    assert sorted(path.parent.name for path in store.folder.glob("jobs/*/*/job.json")) == ["0", "1"]


KILLS = int(os.environ.get("MSACCEL_KILLS", "10"))
SIX = (
    "data=synthetic", "data.train_size=34000", "data.test_size=1000", "accel=none,clip", "seed=0,1,2",
    "checkpoint.every_updates=100", "sweep.resume=true",
)  # fmt: skip


@pytest.mark.soak
@pytest.mark.timeout(7200)
def test_a_sweep_killed_at_random_moments_ends_as_the_undisturbed_one(
    store: Store, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Ten kills, or as many as MSACCEL_KILLS says; between two of them as much time as leads to the end by the last."""
    undisturbed = Store(tmp_path_factory.mktemp("undisturbed"), timeout=3600)
    begun = time.monotonic()
    assert undisturbed.run("-m", *SIX).returncode == 0
    most = 2 * (time.monotonic() - begun) / KILLS
    assert store.runs() == [] and store.client, "MLflow makes its tables before the first kill"
    draw, killed = random.Random(0), 0
    for _ in range(KILLS):
        until = time.monotonic() + draw.uniform(0, most)
        killed += kill_when(store, lambda until=until: time.monotonic() > until, *SIX)  # type: ignore[misc]
    assert killed > KILLS / 2, "the sweep was too short to be killed so often"
    ended = Store(store.folder, timeout=3600).run("-m", *SIX)
    assert ended.returncode == 0, ended.stderr
    found, expected = by_job(store), by_job(undisturbed)
    assert found.keys() == expected.keys() and len(store.runs()) == len(expected)
    assert len({run.data.tags["sweep_id"] for run in store.runs()}) == 1
    for job, run in expected.items():
        assert found[job].info.status == "FINISHED"
        assert history(store, found[job]) == history(undisturbed, run)


def by_job(store: Store) -> dict[str, Run]:
    return {run.info.run_name: run for run in store.runs()}
