"""The page on adding a method, followed to the letter in a copy of the repository."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from mlflow import MlflowClient

from msaccel.files import ROOT

PAGE = ROOT / "docs" / "adding-a-method.md"
COPIED = ("src/msaccel", "conf", "run.py", "pyproject.toml", "tests/__init__.py", "tests/conftest.py")
SMALL = ("data=synthetic", "data.train_size=340", "data.test_size=70", "train.epochs=1", "model=mlp")
Command = Callable[..., subprocess.CompletedProcess[str]]


def files(page: str) -> dict[str, str]:
    """The files of the page by path: each heading that names one, and the code below it."""
    return dict(re.findall(r"^## [^\n]*`([^`\n]+)`\n.*?^```(?:python|yaml)\n(.*?)^```$", page, re.M | re.S))


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The repository with the page's files, and not one line else changed."""
    root = tmp_path_factory.mktemp("copy")
    for name in (*COPIED, "tests/reference.py"):
        source, target = ROOT / name, root / name
        target.parent.mkdir(parents=True, exist_ok=True)
        if source.is_dir():
            shutil.copytree(source, target, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copyfile(source, target)
    added = files(PAGE.read_text())
    assert len(added) == 4
    for name, text in added.items():
        assert not (root / name).exists(), f"{name} is there already; the page adds something new"
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    return root


@pytest.fixture(scope="module")
def command(copy: Path) -> Command:
    """Runs Python in the copy, with the copy's package."""

    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        environment = {**os.environ, "PYTHONPATH": f"{copy}/src:{copy}"}
        return subprocess.run(
            [sys.executable, *arguments], cwd=copy, env=environment, capture_output=True, text=True, timeout=300
        )

    return run


@pytest.mark.slow
def test_the_new_method_trains(copy: Path, command: Command) -> None:
    ended = command("run.py", "accel=agc", *SMALL)
    assert ended.returncode == 0, ended.stderr
    client = MlflowClient(f"sqlite:///{copy}/mlruns/mlflow.db")
    (run,) = client.search_runs([client.get_experiment_by_name("mlp-synthetic").experiment_id])
    assert run.info.run_name == "agc-cpu-s0" and run.data.params["accel.agc.bound"] == "0.01"
    assert 0 < run.data.metrics["grad/clipped"] <= 1


@pytest.mark.slow
@pytest.mark.parametrize(
    ("overrides", "sentence"),
    [
        (("accel=[clip,agc]",), "accel=agc and accel=clip both fill the slot 'clip' of an update; keep one of them."),
        (("accel=agc", "accel.agc.bound=0"), "accel.agc.bound=0.0 is out of range (above 0)"),
        (("accel=[dimreduce,agc]", "train.epochs=6"), "accel=agc with accel=dimreduce has no place for it in stage 2"),
    ],
)
def test_what_cannot_be_right_is_refused(command: Command, overrides: tuple[str, ...], sentence: str) -> None:
    ended = command("run.py", *overrides, *SMALL[:3])
    assert ended.returncode == 2 and sentence in ended.stderr


@pytest.mark.slow
def test_the_test_of_the_page_passes(command: Command) -> None:
    ended = command("-m", "pytest", "-q", "-p", "no:cacheprovider", "tests/test_agc.py")
    assert ended.returncode == 0 and "2 passed" in ended.stdout, ended.stdout
