"""A study's jobs in forked processes: killed and started again, each is trained once, to the bits of `run.py`."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

import pytest

from msaccel.errors import TrainingError
from msaccel.launch.job_folder import JobFolder
from msaccel.study import launcher_pool
from msaccel.study.jobs import StudyJob
from msaccel.tracking.status import FINISHED
from tests import forking
from tests.running import Store, soak, wait_until

STUDY = """
claim: None.
parts:
  accuracy:
    title: Seeds of one method
    common: 
      - model=mlp
      - data=synthetic
      - data.train_size=340
      - data.test_size=70
      - train.epochs=75
      - train.eval_every=75
      - tracking.every=50
      - checkpoint.every_updates=100
      - tracking.artifacts={folder}/artifacts
    arms:
      plain: [accel=none]
    rates: [0.01]
    seeds: [3]
    beside: 1
    seconds: 7
"""
# The command, which may be killed.
COMMAND = """
import sys
from pathlib import Path
from msaccel.__main__ import main
from msaccel.study import protocol, protocol_file
protocol.EXPERIMENTS = Path(sys.argv[1])
sys.exit(main(["study", "tiny", *sys.argv[2:]]))
"""


def started(store: Store, *options: str) -> forking.Background:
    folder = store.folder / "experiments" / "tiny"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "study.yaml").write_text(STUDY.format(folder=store.folder))
    (folder / "README.md").write_text("<!-- results -->\n<!-- /results -->\n")
    script = store.folder / "script.py"
    script.write_text(COMMAND)
    command = [str(script), str(folder.parent), "--tracking-uri", store.uri, *options]
    return forking.start(command, store.folder, os.environ)


def training(store: Store) -> bool:
    """Whether a job is at work and has written a checkpoint."""
    folders = [run.data.tags["job_folder"] for run in store.runs() if run.info.status == "RUNNING"]
    return any(JobFolder(Path(folder.partition(":")[2])).checkpoints() for folder in folders)


def test_a_launcher_that_was_killed_between_two_jobs_is_told_of(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(launcher_pool, "COMMAND", [sys.executable, "-c", "input()"])
    with launcher_pool.Launchers("sqlite:///none.db", "a sweep") as launchers:
        idle = launcher_pool._Launcher("sqlite:///none.db")
        launchers._idle.append(idle)
        idle.process.kill()
        idle.process.wait()
        with pytest.raises(TrainingError, match=r"the process that launches jobs ended with exit code -9\."):
            launchers.train([StudyJob("plain", 0.01, 0, ())], 1, lambda *_: None)


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGKILL, *soak(signal.SIGINT)])
def test_killed_and_started_again_each_run_is_trained_once_to_the_bits_of_run_py(store: Store, number: int) -> None:
    study = started(store)
    wait_until(lambda: training(store), 600)
    os.kill(study.pid, number)
    code = study.wait(600)
    assert code == (130 if number == signal.SIGINT else -signal.SIGKILL), code
    assert started(store).wait(600) == 0
    runs = {run.data.params["seed"]: run for run in store.runs()}
    assert len(store.runs()) == 3 and sorted(runs) == ["0", "1", "2"]
    assert {run.info.status for run in runs.values()} == {FINISHED}
    # One that the signal has met in its training, unless the machine was so busy that it came after the last update.
    resumed = max(runs.values(), key=lambda run: "resumes" in run.data.tags)

    alone = Store(store.folder / "alone")
    alone.folder.mkdir()
    overrides = Path(store.client.download_artifacts(resumed.info.run_id, "overrides.txt")).read_text().splitlines()
    assert alone.run(*[one for one in overrides if not one.startswith("tracking.artifacts")]).returncode == 0
    (expected,) = alone.runs()
    assert store.history(resumed) == alone.history(expected)
    assert started(store, "--check", "--jobs", "1").wait(600) == 0, "the published runs come out again"
