"""What an earlier commit has left is as good for today's code.

The sources of that commit are taken from git. In processes of their own they train jobs in one store, to the end or
until they are killed. Today's code goes on with those that were killed, scores what was saved, and compares it with a
run of its own.

Today's kernels must be those of then, or a resumed job is refused: it is the commit that changed their sources last.
"""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import pytest
from mlflow.entities import Run
from safetensors.numpy import load_file

from msaccel.__main__ import main
from tests.conftest import assert_same_bits
from tests.running import ROOT, SMALL, Store, soak

pytestmark = pytest.mark.slow

BEFORE = "5e38d8500c56fd76239cd67ea6e5803981a7045f"
# The last micro-batch has 16 samples: MindSpore's own loss, which serves where there is no compiler, has the same bits
# in every process for multiples of 16 alone.
LENET = (*SMALL, "data.train_size=336")
CLIPPED = (  # both of its seeds train, so `compare` takes both
    *LENET, "train.epochs=5", "accel=[accum,clip]", "accel.accum.steps=2", "accel.clip.max_norm=0.3", "precision=fp16",
    "loss_scale.mode=dynamic", "loss_scale.init=1e6", "loss_scale.growth_interval=3", "optimizer=adam",
    "optimizer.lr=0.003", "checkpoint.every_updates=4",
)  # fmt: skip
REDUCED = (  # stage 2 begins after update 22
    *LENET, "train.epochs=4", "accel=dimreduce", "accel.dimreduce.components=5", "accel.dimreduce.snapshot.count=6",
    "accel.dimreduce.accum_steps=2", "checkpoint.every_updates=5",
)  # fmt: skip


@dataclass(frozen=True)
class Job:
    """A job of then.

    Attributes:
        killed_at: while it writes the checkpoint of this update; 0: never.
        goes_on_after: the update of the checkpoint before.
    """

    overrides: tuple[str, ...]
    killed_at: int = 0
    goes_on_after: int = 0


JOBS = {
    "clipped": Job(CLIPPED),
    "clipped killed": Job(CLIPPED, 12, 8),
    "reduced": Job(REDUCED),
    "reduced killed in stage 1": Job(REDUCED, 20, 15),
    "reduced killed in stage 2": Job(REDUCED, 30, 25),
}
# As when power fails: the process that trains takes along the one that has started it.
KILLER = """
import os, signal
replace = os.replace
def killed(source, target):
    if f"update-{int(os.environ['KILLED_AT']):010d}." in str(target):
        os.kill(os.getppid(), signal.SIGKILL)
        os.kill(os.getpid(), signal.SIGKILL)
    replace(source, target)
os.replace = killed
"""


@dataclass(frozen=True)
class Before(Store):
    """A store in which the sources of then train; each job in the experiment of its name."""

    sources: Path = ROOT

    def command(self, *overrides: str) -> list[str]:
        python, _, *rest = super().command(*overrides)
        return [python, str(self.sources / "run.py"), *rest]

    def train(self, name: str) -> None:
        job = JOBS[name]
        environment = {"PYTHONPATH": f"{self.sources}:{self.sources}/src", "KILLED_AT": str(job.killed_at)}
        ended = self.run(*job.overrides, f"tracking.experiment={name}", **environment)
        assert ended.returncode == (-signal.SIGKILL if job.killed_at else 0), ended.stderr


def run_of(store: Store, name: str) -> Run:
    experiment = store.client.get_experiment_by_name(name)
    (run,) = store.client.search_runs([experiment.experiment_id])
    return run


def two_at_once(do: Callable, names: Iterable[str]) -> list:
    with ThreadPoolExecutor(2) as pool:
        return list(pool.map(do, names))


@pytest.fixture(scope="module")
def sources(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The files of then that train, beside what kills a job when it is told to."""
    wanted = ["git", "-C", str(ROOT), "archive", BEFORE, "src", "conf", "run.py", "pyproject.toml"]
    try:
        archive = subprocess.run(wanted, capture_output=True, check=True).stdout
    except (OSError, subprocess.CalledProcessError):
        pytest.skip(f"git has no commit {BEFORE[:8]} here, as in a shallow clone; git fetch --unshallow brings it")
    folder = tmp_path_factory.mktemp("before")
    subprocess.run(["tar", "-x", "-C", str(folder)], input=archive, check=True)
    (folder / "sitecustomize.py").write_text(KILLER)
    return folder


@pytest.fixture(scope="module")
def killed(request: pytest.FixtureRequest) -> list[str]:
    """The names of the killed jobs that the selected tests go on with."""
    items = [item for item in request.session.items if item.parent is request.node]
    return [item.callspec.params["name"] for item in items if hasattr(item, "callspec")]


@pytest.fixture(scope="module")
def store(sources: Path, killed: list[str], tmp_path_factory: pytest.TempPathFactory) -> Store:
    """With what the jobs of then have left."""
    folder = tmp_path_factory.mktemp("store")
    say = [sys.executable, "-c", "import msaccel.training.worker as worker; print(worker.__file__)"]
    found = subprocess.run(say, capture_output=True, text=True, env={**os.environ, "PYTHONPATH": f"{sources}/src"})
    assert found.stdout.strip() == f"{sources}/src/msaccel/training/worker.py", "else today's code would train"
    wanted = [name for name, job in JOBS.items() if not job.killed_at or name in killed]
    two_at_once(Before(folder, sources=sources).train, wanted)
    return Store(folder)


@pytest.fixture(scope="module")
def said(store: Store, killed: list[str]) -> dict[str, subprocess.CompletedProcess[str]]:
    """How today's code has ended: by name the killed jobs, resumed, and `today`, one of its own with another seed."""

    def run(name: str) -> subprocess.CompletedProcess[str]:
        if name == "today":
            return store.run(*CLIPPED, "seed=1", "tracking.experiment=today")
        return store.run(f"resume={run_of(store, name).info.run_id}")

    names = [*killed, "today"]
    return dict(zip(names, two_at_once(run, names), strict=True))


@pytest.mark.parametrize("name", ["clipped killed", "reduced killed in stage 2", *soak("reduced killed in stage 1")])
def test_a_killed_run_goes_on_and_ends_as_the_undisturbed_one(store: Store, said: dict, name: str) -> None:
    ended = said[name]
    assert ended.returncode == 0, ended.stderr
    assert f"goes on after update {JOBS[name].goes_on_after}\n" in ended.stdout
    found, expected = run_of(store, name), run_of(store, name.split()[0])
    assert found.info.status == "FINISHED" and found.data.tags["resumes"] == "1"
    history = {metric: sorted(points) for metric, points in store.history(found).items()}
    assert history == store.history(expected)
    assert store.artifacts(found, "checkpoints") == store.artifacts(expected, "checkpoints")
    for file in (name for name in store.artifacts(expected, "checkpoints") if name.endswith(".safetensors")):
        values = [load_file(store.client.download_artifacts(run.info.run_id, file)) for run in (found, expected)]
        assert_same_bits(*values)


def test_a_comparison_takes_runs_of_then_and_of_today_for_the_same(store: Store, said: dict, tmp_path: Path) -> None:
    assert said["today"].returncode == 0, said["today"].stderr
    assert main(["compare", "--tracking-uri", store.uri, "--output", str(tmp_path)]) == 0
    sets = json.loads((tmp_path / "report.json").read_text())["sets"]
    (method,) = next(each["methods"] for each in sets if each["conditions"]["precision"] == {"precision": "fp16"})
    then, today = run_of(store, "clipped"), run_of(store, "today")
    assert method["n"] == 2 and method["run_ids"]["1"] == today.info.run_id
    expected = {"0": then.data.metrics["final/accuracy"], "1": today.data.metrics["final/accuracy"]}
    assert method["measures"]["final_accuracy"]["by_seed"] == expected


def test_eval_scores_a_run_of_then_as_it_did(store: Store, capsys: pytest.CaptureFixture[str]) -> None:
    run = run_of(store, "clipped")
    assert main(["eval", run.info.run_id, "--tracking-uri", store.uri]) == 0
    assert f"accuracy {run.data.metrics['final/accuracy']:.4%}" in capsys.readouterr().out
