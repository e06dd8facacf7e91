"""Every command in the README, the documentation and the cards of studies is one that works.

A command of `run.py` is composed as Hydra would from the shell, every job of a sweep by itself but for those that only
have another seed, and must be refused for nothing; training them all would take hours, and other tests train what each
is about (`tests/tracking/ui` the README's first sweep). A command of `python -m msaccel` is read by its parser, and run
for real where that takes seconds: comparisons on planted runs, for example. What is left is named with its reason; a
command of another kind fails.
"""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from hydra import initialize_config_dir
from hydra._internal.core_plugins.basic_sweeper import BasicSweeper
from hydra.core.global_hydra import GlobalHydra
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.types import RunMode
from omegaconf import open_dict, read_write

from msaccel.__main__ import main, parser
from msaccel.config import compose
from msaccel.config.bounds import bad_values
from msaccel.config.checks import refusals, without_effect
from msaccel.config.compose import readable
from msaccel.files import CONF, ROOT
from msaccel.sweeps import presets
from tests.compare.conftest import Planted, empty, plant_plausible

PAGES = [ROOT / "README.md", *sorted(ROOT.glob("docs/**/*.md")), *sorted(ROOT.glob("experiments/**/*.md"))]
# What a reader puts in: paths, ids, a rate, names of a cluster's.
PUT_IN = {
    "FOLDER": "/photographs",
    "RECORDS": "/records",
    "RATE": "0.01",
    "RUN_ID": "0123456789abcdef" * 2,
    "SWEEP_ID": "one",
    "NAME": "cpu",
}
ELSEWHERE = {
    "mlflow server": "starts a server: tests/inputs/test_secrets.py",
    "accel=agc": "a method that is not there; its page is followed by tests/accel/test_adding_a_method.py",
    "accel=none,clip,agc": "the same",
    "model=allconv": "a network that is not there; its page is followed by tests/models/test_adding_a_network.py",
    "data=npz": "a data set that is not there; its page is followed by tests/data/test_adding_a_data_set.py",
}
TARGETS = re.compile(r"^([a-z-]+):", re.M)


def commands() -> Iterator[tuple[str, str]]:
    """Each command line of a page's blocks of commands, with the page."""
    for page in PAGES:
        for language, block in re.findall(r"^```(\w*)\n(.*?)^```$", page.read_text(), re.M | re.S):
            for line in block.replace("\\\n", "").splitlines() if language in ("", "bash", "console") else ():
                if line.strip() and not line.startswith("FOLDER/"):  # which shows what lies in a folder
                    yield str(page.relative_to(ROOT)), line


EVERY = list(dict.fromkeys(commands()))


def words(line: str) -> list[str]:
    """The words of a command without comment, brackets of what may be left out, and assignments before it."""
    found = shlex.split(re.sub(r"\[(--[^\]]+)\]", r"\1", line), comments=True)
    while found and re.fullmatch(r"[A-Z_]+=.*", found[0]):
        found.pop(0)
    return [re.sub(r"\b(" + "|".join(PUT_IN) + r")\b", lambda match: PUT_IN[match[1]], word) for word in found]


@pytest.fixture(scope="module", autouse=True)
def registered() -> None:
    compose.register()
    presets.register()


@pytest.fixture(scope="module")
def planted(tmp_path_factory: pytest.TempPathFactory) -> Planted:
    """Runs that commands read and leave as they are."""
    store = plant_plausible(empty(tmp_path_factory.mktemp("planted")))
    of_accum = {"accel": "accum", "accel__accum__steps": "4"}
    for settings in ({}, {"train__batch_size": "128"}, of_accum):  # at another rate, so that there is one to choose
        store.runs([0.9, 0.91, 0.92, 0.9, 0.9], optimizer__lr="0.02", train__target_accuracy="0.96", **settings)
    for run in store.find():
        store.client.set_tag(run.run_id, "device", "cpu")
        store.client.log_text(run.run_id, "# a machine\nmindspore==2.10.0", "environment.txt")
    return store


@pytest.fixture
def example(planted: Planted, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Planted:
    """The planted runs, for a command in a folder of its own with a page for a report."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "notes.md").write_text("<!-- results -->\n<!-- /results -->\n")
    return planted


@pytest.mark.slow
@pytest.mark.parametrize(("page", "line"), EVERY, ids=[f"{page}: {line[:60]}" for page, line in EVERY])
def test_a_documented_command(page: str, line: str, request: pytest.FixtureRequest) -> None:
    if any(part in line for part in ELSEWHERE):
        return
    command = words(line)
    if command[:2] == ["python", "run.py"]:
        composed(command[2:])
    elif command[:3] == ["python", "-m", "msaccel"]:
        parser().parse_args(command[3:])
        if command[3] == "compare":
            store = request.getfixturevalue("example")
            wanted = ["lenet-mnist" if word == "best" else word for word in command[3:]]
            assert main([*wanted, "--tracking-uri", store.uri]) == 0
        elif command[3] == "status":
            assert main([*command[3:], "--tracking-uri", request.getfixturevalue("example").uri]) == 0
        elif command[3] == "launch-plan":
            assert main(command[3:]) == 0
    elif command[0] == "make":
        known = TARGETS.findall((ROOT / "Makefile").read_text())
        assert command[1] in known
    elif command[:3] == ["pip", "install", "-e"]:
        extra = command[3].removeprefix(".").strip("[]")
        assert not extra or f"\n{extra} = [" in (ROOT / "pyproject.toml").read_text()
        assert (ROOT / command[command.index("-c") + 1]).exists()
    else:
        assert command[:1] in ([], ["export"]), f"{page} names a command that no test knows: {line}"


def composed(arguments: list[str]) -> None:
    """Composes the jobs of a command line of `run.py`, one of those that differ in the seed; none may be refused."""
    overrides = [word for word in readable(arguments) if not word.startswith("-")]
    if "--cfg" in arguments or "--help" in arguments:
        assert main_of_run(*arguments).returncode == 0
        return
    several = "-m" in arguments
    with initialize_config_dir(str(CONF), version_base="1.3"):
        loader = GlobalHydra.instance().config_loader()
        mode = RunMode.MULTIRUN if several else RunMode.RUN
        whole = loader.load_configuration("config", overrides, mode)
        chosen_as_it_goes = "basic_sweeper" not in whole.hydra.sweeper["_target_"].lower()
        jobs = [list(whole.hydra.overrides.task)]
        if several and not chosen_as_it_goes:
            parsed = OverridesParser.create(config_loader=loader).parse_overrides(jobs[0])
            split = BasicSweeper.split_arguments(parsed, max_batch_size=None)[0]
            distinct = {tuple(word for word in job if not word.startswith("seed=")): list(job) for job in split}
            jobs = list(distinct.values())
        for job in jobs:
            one = loader.load_sweep_config(whole, job) if several else whole
            with read_write(one), open_dict(one):
                del one["hydra"]
            config = compose.typed(one)
            assert [*bad_values(config), *refusals(config), *without_effect(config, job)] == [], job


def main_of_run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "run.py", *arguments], cwd=ROOT, capture_output=True, text=True, timeout=400)


def test_there_are_commands_in_every_place() -> None:
    pages = {page for page, _ in EVERY}
    assert {"README.md", "docs/comparing.md", "docs/devices.md", "docs/sweeps.md", "experiments/README.md"} <= pages


@pytest.mark.skipif(shutil.which("make") is None, reason="make is missing")
@pytest.mark.parametrize("target", ["run", "test", "ui", "bench"])
def test_make_knows_what_to_do(target: str) -> None:
    ended = subprocess.run(["make", "-n", target], cwd=ROOT, capture_output=True, text=True, timeout=400)
    assert ended.returncode == 0 and "python" in ended.stdout
