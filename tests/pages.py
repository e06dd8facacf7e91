"""Pages of the documentation that add something, followed to the letter in a copy of the repository."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import time
from pathlib import Path

from mlflow import MlflowClient
from mlflow.entities import Run

from msaccel.files import ROOT
from tests import forking

COPIED = (
    "src/msaccel",
    "conf",
    "run.py",
    "pyproject.toml",
    "tests/__init__.py",
    "tests/conftest.py",
    "tests/reference.py",
    "tests/forking.py",
    "tests/running.py",
)


def files(page: str) -> dict[str, str]:
    """The files of a page by path: each heading that names one, and the code below it."""
    return dict(re.findall(r"^## [^\n]*`([^`\n]+)`\n.*?^```(?:python|yaml)\n(.*?)^```$", page, re.M | re.S))


def copy_with(page: Path, root: Path) -> Path:
    """Copies the repository to `root` and adds the page's files, with not one line else changed."""
    for name in COPIED:
        source, target = ROOT / name, root / name
        target.parent.mkdir(parents=True, exist_ok=True)
        if source.is_dir():
            shutil.copytree(source, target, ignore=shutil.ignore_patterns("*.pyc.*"))  # being written by others
        else:
            shutil.copyfile(source, target)
    for name, text in files(page.read_text()).items():
        assert not (root / name).exists(), f"{name} is there already; the page adds something new"
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    return root


def environment(root: Path) -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": f"{root}/src:{root}"}


def run(root: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Runs Python in the copy, with the copy's package."""
    return forking.run(arguments, root, environment(root), 300, root)


def interrupt(root: Path, *overrides: str) -> None:
    """Starts a job, and interrupts it when its first resume checkpoint is there."""
    jobs = root / "jobs" / str(len(list(root.glob("jobs/*"))))
    job = forking.start(["run.py", *overrides, f"hydra.run.dir={jobs}"], root, environment(root), root)
    try:
        end = time.monotonic() + 250
        while not list(jobs.glob("resume/update-*.safetensors")):
            assert time.monotonic() < end
            assert job.poll() is None, job.communicate()[1]
            time.sleep(0.01)
        job.send_signal(signal.SIGINT)
        job.communicate(timeout=400)
    finally:
        job.kill()
        job.wait()


def kill_and_resume(root: Path, experiment: str, *overrides: str) -> str:
    """Interrupts a job, which is then resumed to its end; returns the id of its run."""
    interrupt(root, *overrides)
    (killed,) = [one for one in runs(root, experiment) if one.info.status == "KILLED"]
    resumed = run(root, "run.py", f"resume={killed.info.run_id}")
    assert resumed.returncode == 0 and "goes on after update" in resumed.stdout, resumed.stderr
    return str(killed.info.run_id)


def runs(root: Path, experiment: str) -> list[Run]:
    client = MlflowClient(f"sqlite:///{root}/mlruns/mlflow.db")
    return client.search_runs([client.get_experiment_by_name(experiment).experiment_id])
