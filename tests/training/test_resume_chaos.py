"""Jobs that are killed at any moment, again and again, end as if nothing had been: no point missing, none twice.

Killed by SIGKILL is what the draw says: `run.py`, one of its workers, or everything at once, as when power fails. The
moments are spread over the time that the undisturbed job takes, so they meet imports, compilations, checkpoints being
written, evaluations and the end of the job, and jobs that are just being resumed.
"""

import random
import subprocess
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import psutil
import pytest
from mlflow.entities import Run
from safetensors.numpy import load_file

from tests.conftest import assert_same_bits
from tests.running import Store

LENET = (
    "model=lenet", "data=mnist", "data.limit_train=4000", "data.limit_eval=1000", "train.batch_size=16",
    "train.epochs=4", "tracking.every=20", "checkpoint.every_updates=25",
)  # fmt: skip
JOBS = {
    "none": ("accel=none", "data.limit_train=12000", "optimizer=adam", "optimizer.lr=0.001"),
    "accum": ("accel=accum", "data.limit_train=12000", "data.val_fraction=0.1"),
    "clip": ("accel=clip", "data.limit_train=12000", "loss_scale.mode=dynamic"),
    "adasum": ("accel=adasum", "accel.adasum.scope=rank", "device=cpu4", "device.simulate=always"),
    "dimreduce": ("accel=dimreduce", "train.batch_size=32", "train.epochs=6"),
}
RESNET = (
    "model=resnet50", "model.depth=20", "data=cifar10", "data.limit_train=1500", "train.epochs=3", "device=cpu4",
    "device.ranks_per_server=2", "tracking.every=3", "checkpoint.every_updates=4",
)  # fmt: skip
REAL_RANKS = {
    "adasum on four ranks": ("accel=adasum", "accel.adasum.scope=rank", "device=cpu4", "train.epochs=2"),
    "dimreduce on four ranks": ("accel=dimreduce", "device=cpu4", "train.epochs=6", "accel.dimreduce.components=8"),
    "batch norm on two ranks": RESNET,
}
LONGEST = 600  # seconds until a job counts as hung


def family(launcher: int) -> list[psutil.Process]:
    """`run.py` and what it has started, its workers last."""
    try:
        process = psutil.Process(launcher)
        return [process, *process.children(recursive=True)]
    except psutil.NoSuchProcess:
        return []


def kill(launcher: subprocess.Popen[str], draw: random.Random) -> str:
    """Kills some of a job's processes and returns when all of them are gone."""
    processes = family(launcher.pid)
    way = draw.choice(("run.py", "one worker", "everything"))
    if way == "run.py" or not processes[1:]:
        chosen = processes[:1]
    else:
        chosen = [draw.choice(processes[1:])] if way == "one worker" else processes
    for process in chosen:
        with suppress(psutil.NoSuchProcess):
            process.kill()
    launcher.communicate(timeout=LONGEST)
    _, alive = psutil.wait_procs(processes, timeout=400)
    assert not alive, f"{way} was killed, and {alive} live on"
    return way


def unfinished(store: Store) -> list[Run]:
    return [run for run in store.runs() if run.info.status != "FINISHED"]


def disturb(store: Store, job: tuple[str, ...], kills: int, longest: float, draw: random.Random) -> list[str]:
    """Starts and resumes jobs until so many of their processes were killed and every run has finished.

    Args:
        longest: seconds; the moments of the kills are spread over them.

    Returns:
        What was done.
    """
    done: list[str] = []
    while kills or unfinished(store):
        broken = unfinished(store)
        assert len(broken) <= 1, done
        overrides = [f"resume={broken[0].info.run_id}"] if broken else job
        launcher = subprocess.Popen(
            store.command(*overrides), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )
        try:
            moment = draw.uniform(0, longest) if kills else LONGEST
            try:
                said, _ = launcher.communicate(timeout=moment)
            except subprocess.TimeoutExpired:
                done.append(f"killed {kill(launcher, draw)} after {moment:.1f} s")
                kills -= 1
            else:
                done.append("finished" if launcher.returncode == 0 else said)
                assert launcher.returncode == 0, done
        finally:
            for process in family(launcher.pid):
                with suppress(psutil.NoSuchProcess):
                    process.kill()
    return done


def weights(store: Store, run: Run) -> dict:
    return load_file(store.client.download_artifacts(run.info.run_id, "checkpoints/last.safetensors"))


def chaos(folder: Path, job: tuple[str, ...], kills: int, seed: int) -> None:
    undisturbed, disturbed = (Store(folder / name, timeout=LONGEST) for name in ("undisturbed", "disturbed"))
    for store in (undisturbed, disturbed):
        store.folder.mkdir()
    started = time.monotonic()
    assert undisturbed.run(*job).returncode == 0
    done = disturb(disturbed, job, kills, time.monotonic() - started, random.Random(seed))
    (expected,) = undisturbed.runs()
    for found in disturbed.runs():
        history = {name: sorted(points) for name, points in disturbed.history(found).items()}
        assert history == undisturbed.history(expected), done
        assert_same_bits(weights(disturbed, found), weights(undisturbed, expected))


def cases() -> Iterator[object]:
    """3 kills of one in `make test`, 20 of each in `make soak`."""
    long = (pytest.mark.soak, pytest.mark.timeout(3600))
    for kills, marks, names in ((3, pytest.mark.slow, ("accum",)), (20, long, JOBS)):
        for name in names:
            yield pytest.param((*LENET, *JOBS[name]), kills, marks=marks, id=f"{name}, {kills} kills")
    for name, job in REAL_RANKS.items():
        yield pytest.param((*LENET, *job), 20, marks=long, id=f"{name}, 20 kills")


@pytest.mark.parametrize(("job", "kills"), list(cases()))
def test_a_job_that_is_killed_again_and_again_ends_as_the_undisturbed_one(
    tmp_path: Path, job: tuple[str, ...], kills: int
) -> None:
    chaos(tmp_path, job, kills, seed=kills)
