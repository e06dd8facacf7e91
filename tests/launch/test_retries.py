"""A job that crashes is tried again, one that says why it failed is not, and one that takes too long is ended.

The worker is a script that does what the test says; the store and everything around the worker are real.
"""

import json
import signal
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from msaccel.config import compose
from msaccel.launch import launcher, outcome
from msaccel.launch.job import Result, Task
from msaccel.launch.job_folder import JobFolder
from msaccel.launch.processes import Process, Processes
from msaccel.schema import Config
from tests.running import Store

# What the launcher of a job reads: rank-0.json, result.json, an exit code.
WORKER = """
import json, os, pathlib, signal, sys, time
folder, what = pathlib.Path(sys.argv[1]), sys.argv[2]
def end(status, message="", crashed=False):
    (folder / "rank-0.json").write_text(json.dumps({"status": status, "message": message, "crashed": crashed}))
    (folder / "result.json").write_text(json.dumps({"name": "job", "status": status, "message": message}))
    os._exit(status != "FINISHED")
if what == "sleep":
    signal.signal(signal.SIGUSR1, lambda number, frame: end("KILLED", "interrupted"))
    time.sleep(60)
elif what.startswith("SIG"):
    os.kill(os.getpid(), getattr(signal, what))
elif what == "FINISHED":
    end(what)
end("FAILED", what, crashed="memory" in what)
"""


@dataclass
class Worker:
    """Takes the place of the ranks of a job: one thing to do for each attempt."""

    does: list[str]
    told: list[Task] = field(default_factory=list)

    def start(self, config: Config, folder: JobFolder, task: Task, env: dict[str, str]) -> Processes:
        self.told.append(folder.task())
        processes = Processes()
        command = [sys.executable, "-S", "-c", WORKER, str(folder.path), self.does.pop(0)]
        processes.start("rank 0", 0, command, env, None)
        return processes


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Store:
    return Store(tmp_path_factory.mktemp("attempts"))


@pytest.fixture
def tried(place: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, composed: Callable[..., Config]) -> Callable:
    """Runs a job whose attempts do this; returns how it ended, and what each attempt was told."""

    def run(does: list[str], *overrides: str) -> tuple[Result, list[Task]]:
        worker = Worker(does)
        monkeypatch.setattr(launcher, "start", worker.start)
        config = composed("data=synthetic", f"tracking.uri={place.uri}", *overrides)
        return launcher.run(config, JobFolder(tmp_path), Task("job")), worker.told

    return run


@pytest.mark.slow
def test_a_crash_is_tried_again_and_the_run_goes_on(tried: Callable, place: Store, tmp_path: Path) -> None:
    experiment = place.client.create_experiment("lenet-synthetic")
    run_id = place.client.create_run(experiment).info.run_id
    (tmp_path / "run.json").write_text(json.dumps({"run_id": run_id, "tracking_uri": place.uri}))
    result, told = tried(["SIGSEGV", "memory ran out", "FINISHED"], "sweep.retries=5")
    assert result.status == "FINISHED"
    assert [task.resume for task in told] == ["", run_id, run_id]
    place.client.set_terminated(run_id, "FINISHED")


def test_a_resumed_job_is_tried_again_with_its_new_budget(
    place: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, composed: Callable[..., Config]
) -> None:
    """Its folder has the old settings until the worker has accepted the new ones."""
    worker = Worker(["SIGSEGV", "FINISHED"])
    monkeypatch.setattr(launcher, "start", worker.start)
    given, folder = ("data=synthetic", f"tracking.uri={place.uri}"), JobFolder(tmp_path)
    run_id = place.client.create_run(place.client.create_experiment("resumed")).info.run_id
    compose.save(composed(*given), folder.config)
    folder.assign(Task("job"))
    folder.write("run.json", {"run_id": run_id, "tracking_uri": place.uri})
    more = composed(*given, "train.epochs=10", "sweep.retries=1")
    result = launcher.run(more, folder, Task("job", resume=run_id))
    assert (result.status, [task.resume for task in worker.told]) == ("FINISHED", [run_id, run_id])


def test_so_many_times_and_no_more(tried: Callable) -> None:
    result, told = tried(["SIGABRT", "SIGKILL", "FINISHED"], "sweep.retries=1")
    assert (result.status, result.crashed, len(told)) == ("FAILED", True, 2)
    assert "was ended by SIGKILL" in result.message


def test_what_gives_its_reason_is_not_tried_again(tried: Callable, capsys: pytest.CaptureFixture[str]) -> None:
    result, told = tried(["the gradient of update 3 is not finite."], "sweep.retries=5")
    assert (result.status, result.crashed, len(told)) == ("FAILED", False, 1)
    assert capsys.readouterr().err == "job: the gradient of update 3 is not finite.\n"


def test_by_default_nothing_is_tried_again(tried: Callable) -> None:
    assert len(tried(["SIGSEGV"])[1]) == 1


def test_a_job_that_takes_too_long_is_ended_and_failed(tried: Callable) -> None:
    result, told = tried(["sleep"], "sweep.job_timeout_s=0.7", "sweep.retries=5")
    assert (result.status, result.crashed, len(told)) == ("FAILED", False, 1)
    assert result.message == "the job did not end within sweep.job_timeout_s=0.7; resume it, with more seconds."


@dataclass
class Outcome:
    """A process that has ended with a code."""

    returncode: int

    def poll(self) -> int:
        return self.returncode


@pytest.mark.parametrize(
    ("number", "for_memory", "said"),
    [
        (signal.SIGSEGV, False, "the worker crashed (SIGSEGV): compiled code went beyond its memory"),
        (signal.SIGABRT, False, "the worker crashed (SIGABRT): it aborted in compiled code"),
        (signal.SIGKILL, True, "the worker was ended by SIGKILL as memory ran out; write a smaller train.batch_size"),
        (signal.SIGKILL, False, "the worker was ended by SIGKILL (the system ends processes so when memory runs out)"),
        (signal.SIGTERM, True, "the worker was ended by SIGTERM"),
    ],
)
def test_what_ended_a_process_is_named(
    tmp_path: Path, composed: Callable[..., Config], number: signal.Signals, for_memory: bool, said: str
) -> None:
    process = Process("rank 0", 0, Outcome(-number), None)  # type: ignore[arg-type]
    assert outcome.failure(JobFolder(tmp_path), composed(), process, for_memory).startswith(said)


def test_want_of_memory_is_recognised_by_who_says_it() -> None:
    from msaccel.training.worker import _is_memory

    for error in (
        MemoryError(),
        RuntimeError("std::bad_alloc"),
        RuntimeError("Allocate dynamic workspace memory failed"),
        RuntimeError("CUDA error: out of memory"),
    ):
        assert _is_memory(error)
    assert not _is_memory(RuntimeError("AllReduce-op failed"))
