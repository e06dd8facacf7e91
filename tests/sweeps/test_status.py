"""What is said of runs: which are at work, which only seem to be, how far they are and how they go on."""

import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path

import pytest
from mlflow import MlflowClient

from msaccel.__main__ import main
from msaccel.config import compose
from msaccel.config.run_name import run_name
from msaccel.launch.job_folder import JobFolder
from msaccel.schema import Config
from msaccel.sweeps import status
from msaccel.sweeps.folder import FILE, SweepCommand, SweepRecord
from msaccel.tracking.heartbeat import HEARTBEAT
from msaccel.tracking.mlflow_run import UPDATES, Run
from msaccel.tracking.start import start
from msaccel.tracking.status import JOB_FOLDER
from tests.running import Store


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Store:
    return Store(tmp_path_factory.mktemp("standing"))


@pytest.fixture
def begin(place: Store, tmp_path: Path, composed: Callable[..., Config], request: pytest.FixtureRequest) -> Callable:
    """Begins jobs of an experiment that has the test's name."""

    def begun(number: int = 0, sweep_id: str = "") -> tuple[Run, JobFolder]:
        mine = (f"tracking.uri={place.uri}", f"tracking.artifacts={place.folder}", f"tracking.experiment={name}")
        config = composed("model=mlp", *mine)
        folder = JobFolder(tmp_path / str(number))
        folder.path.mkdir(parents=True)
        compose.save(config, folder.config)
        return start(config, run_name(config), sweep_id, folder.path), folder

    name = request.node.name
    return begun


@pytest.fixture
def only(place: Store, request: pytest.FixtureRequest) -> Callable[[], status.RunStatus]:
    def found() -> status.RunStatus:
        (one,) = status.find(place.client, request.node.name, 10)
        return one

    return found


@contextmanager
def at_work(folder: JobFolder, name: str = "rank-0") -> Iterator[None]:
    lock = folder.lock(name)
    yield
    lock.release()


def logs(client: MlflowClient, run: Run, update: int, **metrics: float) -> None:
    for name, value in metrics.items():
        client.log_metric(run.run_id, name.replace("__", "/"), value, step=update)


def test_a_run_at_work_and_how_far_it_is(begin: Callable, only: Callable, place: Store) -> None:
    run, folder = begin()
    with at_work(folder):
        assert (only().status, only().update, only().seconds_left, only().accuracy) == ("RUNNING", None, None, None)
        run.tag(**{UPDATES: "5400"})
        logs(place.client, run, 1800, time__train_s=20.0, throughput__samples_per_sec=2880.0, eval__accuracy=0.9)
        found = only()
    assert (found.update, found.updates, found.seconds_left) == (1800, 5400, 40.0)
    assert (found.samples_per_sec, found.accuracy, found.ended, found.go_on) == (2880.0, 0.9, None, "")


def test_without_a_process_it_is_dead_at_once_and_can_be_resumed(begin: Callable, only: Callable) -> None:
    run, folder = begin()
    with at_work(folder, "launcher"):
        assert only().status == "RUNNING", "its launcher is about to say how it ended"
    found = only()
    assert (found.status, found.go_on) == ("DEAD", f"python run.py resume={run.run_id}")
    assert found.in_store("sqlite:///a b").go_on.endswith(" 'tracking.uri=sqlite:///a b'")
    assert found.in_store("x").in_store("x") == found.in_store("x")


def test_elsewhere_the_heartbeat_tells(begin: Callable, only: Callable, place: Store) -> None:
    run, _ = begin()
    run.tag(**{JOB_FOLDER: "another-machine:/jobs/0"})
    assert only().status == "RUNNING"
    place.client.set_tag(run.run_id, HEARTBEAT, "2020-01-01T00:00:00+00:00")
    assert only().status == "RUNNING", "it has just begun"
    later = time.time() + 200
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(status.time, "time", lambda: later)
        assert (only().status, only().go_on) == ("DEAD", "")


def test_the_job_of_a_sweep_goes_on_with_its_sweep(begin: Callable, only: Callable, tmp_path: Path) -> None:
    record = SweepRecord(SweepCommand(["seed=0,1"], {}, ""), ["hydra/launcher=joblib", "seed=0,1"], "2026-11-20")
    JobFolder(tmp_path).write(FILE, asdict(record))
    begin(sweep_id="a sweep")
    assert only().go_on == "python run.py -m hydra/launcher=joblib seed=0,1 sweep.resume=true"
    assert only().sweep_id == "a sweep"
    with at_work(JobFolder(tmp_path), "sweep"):
        assert only().go_on == "", "it is being seen to"


def test_the_command_shows_all_of_them(
    begin: Callable, place: Store, request: pytest.FixtureRequest, capsys: pytest.CaptureFixture[str]
) -> None:
    (working, folder), (dead, _), (done, _), (failed, _) = map(begin, range(4))
    logs(place.client, done, 9, final__accuracy=0.9876)
    place.client.set_terminated(done.run_id, "FINISHED")
    place.client.set_terminated(failed.run_id, "FAILED")
    asked = ["status", "--tracking-uri", place.uri, "--experiment", request.node.name]
    with at_work(folder):
        assert main(asked) == 0
        said = capsys.readouterr().out
        assert main([*asked, "--json", "--recent", "1"]) == 0
    for run in (working, dead, done, failed):
        assert said.count(run.run_id) == 1 + (run in (dead, failed)), "in a table, and in a command if it can go on"
    assert "98.76%" in said and said.index("running") < said.index("dead") < said.index("ended")
    assert f"resume: python run.py resume={dead.run_id} tracking.uri={place.uri}\n" in said.replace(" \\\n    ", " ")
    as_json = json.loads(capsys.readouterr().out)
    assert [one["status"] for one in as_json] == ["DEAD", "RUNNING", "FAILED"]


def test_an_empty_store_is_no_error(store: Store, capsys: pytest.CaptureFixture[str]) -> None:
    assert store.runs() == [] and store.client
    assert main(["status", "--tracking-uri", store.uri]) == 0
    assert capsys.readouterr().out == "no runs; python run.py trains one\n"


@pytest.mark.parametrize("command", ["status", "compare"])
def test_a_store_that_is_not_there_is_not_made(command: str, store: Store, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([command, "--tracking-uri", store.uri]) == 2
    file = f"{store.folder}/mlflow.db"
    sentence = f"--tracking-uri={store.uri}: there is no file {file}; write one that is there."
    assert sentence in capsys.readouterr().err and list(store.folder.iterdir()) == []


@pytest.mark.parametrize("command", ["status", "compare", "ui"])
def test_an_empty_address_of_a_store_is_refused(
    command: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main([command, "--tracking-uri", ""]) == 2
    assert capsys.readouterr().err == "--tracking-uri= is empty; write a value, or leave it out.\n"
    assert list(tmp_path.iterdir()) == []


def test_a_resumed_run_has_not_ended(begin: Callable, only: Callable, place: Store) -> None:
    run, folder = begin()
    place.client.set_terminated(run.run_id, "KILLED")
    assert only().ended
    place.client.update_run(run.run_id, status="RUNNING")
    with at_work(folder):
        assert (only().status, only().ended) == ("RUNNING", None)
