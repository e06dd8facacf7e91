"""A signal at any moment ends a sweep: finished jobs are kept, no further one begins, and it says how to go on."""

import errno
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from omegaconf import DictConfig

import msaccel.cli.main as entry
from msaccel.cli import run
from msaccel.config import compose
from msaccel.launch import launcher
from msaccel.launch.job_folder import JobFolder
from msaccel.schema import Config
from msaccel.sweeps import callback, session, submitit
from msaccel.sweeps.folder import SweepFolder
from tests.launch.test_endings import LONG
from tests.launch.test_retries import Worker
from tests.running import SMALL, Store, wait_until

GO_ON = "to go on with the sweep: the same command with sweep.resume=true\n"
MOMENTS = {
    "before a job": (run, "wait_for_lock"),
    "a job's processes have ended": (launcher, "watch"),
    "how it ended is known": (launcher, "find_outcome"),
    "how it ended is written": (launcher, "record"),
    "between two jobs": (launcher, "run_in_sweep"),
    "before the report": (callback, "finish"),
}
# Each moment, and each way of an interrupt; all others are soak tests.
OFTEN = [
    ("before a job", False, False),
    ("a job's processes have ended", True, False),
    ("how it ended is known", False, True),
    ("how it ended is written", True, True),
    ("between two jobs", False, True),
    ("before the report", False, False),  # with which all is done
]
SELDOM = [
    pytest.param(moment, swallowed, afterwards, marks=pytest.mark.soak)
    for moment in MOMENTS
    if moment != "before the report"
    for swallowed in (False, True)
    for afterwards in (False, True)
    if (moment, swallowed, afterwards) not in OFTEN
]


@pytest.fixture(autouse=True)
def as_before(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """`main` sets signal handlers and variables for its own process."""
    for name in ("HYDRA_FULL_ERROR", "MSACCEL_TRACEBACK"):
        monkeypatch.setenv(name, "")
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


def interrupts(call: Callable, *, swallowed: bool, afterwards: bool) -> Callable:
    """The call with a signal before or after it; an exception that is swallowed was raised in a destructor."""

    def interrupted(*arguments: object, **keys: object) -> object:
        found = call(*arguments, **keys) if afterwards else None
        try:
            signal.raise_signal(signal.SIGINT)
        except KeyboardInterrupt:
            if not swallowed:
                raise
        return found if afterwards else call(*arguments, **keys)

    return interrupted


def sweep(store: Store, monkeypatch: pytest.MonkeyPatch, jobs: int = 2) -> tuple[int, Worker]:
    """A sweep whose jobs finish at once; its exit code, and the jobs that were started."""
    worker = Worker(["FINISHED"] * jobs)
    monkeypatch.setattr(launcher, "start", worker.start)
    seeds = f"seed={','.join(map(str, range(jobs)))}"
    monkeypatch.setattr(sys, "argv", [*store.command("-m", *SMALL, seeds)[1:], f"hydra.sweep.dir={store.folder}/sweep"])
    return entry.main(), worker


@pytest.mark.slow
@pytest.mark.parametrize(("moment", "swallowed", "afterwards"), [*OFTEN, *SELDOM])
def test_a_signal_at_any_moment_ends_the_sweep(
    moment: str, swallowed: bool, afterwards: bool, store: Store, monkeypatch: pytest.MonkeyPatch, capsys
) -> None:
    module, name = MOMENTS[moment]
    call = getattr(module, name)
    monkeypatch.setattr(module, name, interrupts(call, swallowed=swallowed, afterwards=afterwards))
    code, worker = sweep(store, monkeypatch)
    out, said = capsys.readouterr()
    assert code == 130
    assert said.endswith("interrupted; what was logged until then is kept\n") and "Traceback" not in said
    assert out.endswith(GO_ON)
    most = {"finish": 2, "wait_for_lock": int(swallowed), "run_in_sweep": int(swallowed or afterwards)}
    assert len(worker.told) == most.get(name, 1)
    if afterwards and name != "wait_for_lock":  # before, the job may still have been at work
        kept = JobFolder(store.folder / "sweep" / "0").result()
        assert kept and kept.status == "FINISHED"


def test_a_full_disk_in_one_job_does_not_take_the_report_along(
    store: Store, monkeypatch: pytest.MonkeyPatch, capsys
) -> None:
    call, saved = compose.save, []

    def save(config: Config, path: Path) -> None:
        saved.append(path)
        if len(saved) == 2:
            raise OSError(errno.ENOSPC, "No space left on device", str(path))
        call(config, path)

    monkeypatch.setattr(compose, "save", save)
    code, worker = sweep(store, monkeypatch, jobs=3)
    said = capsys.readouterr().err
    assert code == 2 and len(worker.told) == 2
    assert re.fullmatch(
        r"\[2/3\] baseline s1: .*/config.yaml could not be written or read \(No space left on device\); .*",
        said.splitlines()[-1],
    )
    assert SweepFolder(store.folder / "sweep").is_unfinished(), "to be resumed"


def test_a_job_that_left_no_result_is_missed(store: Store, monkeypatch: pytest.MonkeyPatch, capsys) -> None:
    call = JobFolder.write

    def write(folder: JobFolder, name: str, content: object, durable: bool = False) -> None:
        if name == "result.json" and folder.path.name == "1":
            raise OSError(errno.ENOSPC, "No space left on device", str(folder.path))
        call(folder, name, content, durable)

    monkeypatch.setattr(JobFolder, "write", write)
    monkeypatch.setattr(launcher, "start", Worker(["FINISHED", "SIGSEGV"]).start)
    given = [*store.command("-m", *SMALL, "seed=0,1")[1:], f"hydra.sweep.dir={store.folder}/sweep"]
    monkeypatch.setattr(sys, "argv", given)
    assert entry.main() == 1
    out, said = capsys.readouterr()
    assert "1 of the 2 jobs: FAILED: left no result" in said
    assert out.endswith(GO_ON)


def test_one_job_that_has_finished_stays_so(store: Store, monkeypatch: pytest.MonkeyPatch, capsys) -> None:
    monkeypatch.setattr(launcher, "watch", interrupts(launcher.watch, swallowed=False, afterwards=True))
    monkeypatch.setattr(launcher, "start", Worker(["FINISHED"]).start)
    monkeypatch.setattr(sys, "argv", store.command(*SMALL)[1:])
    assert entry.main() == 0
    assert capsys.readouterr().err == "baseline s0: had finished already\n"


def test_a_signal_while_submitit_has_given_up_ends_without_a_traceback(
    store: Store, monkeypatch: pytest.MonkeyPatch, capsys
) -> None:
    """Also a second one, which comes while the jobs are waited for."""

    def lost(*_: object) -> str:
        raise RuntimeError("lost")

    def sent(*_: object) -> str:
        signal.raise_signal(signal.SIGINT)
        return ""

    monkeypatch.setattr(entry, "job", lost)
    monkeypatch.setattr(submitit, "settle_lost_jobs", sent)
    monkeypatch.setattr(submitit, "end_jobs", sent)
    opened = session.Session(submitted=DictConfig({}))
    monkeypatch.setattr(session, "Session", lambda: opened)
    monkeypatch.setattr(sys, "argv", store.command("-m", *SMALL)[1:])
    assert entry.main() == 130
    assert capsys.readouterr().err == "interrupted; what was logged until then is kept\n"


@pytest.mark.slow
def test_ctrl_c_after_a_jobs_last_line_ends_the_sweep(store: Store) -> None:
    command = store.command("-m", *SMALL, "model=mlp", "seed=0,1,2")
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        assert process.stdout
        for line in process.stdout:
            if "final accuracy" in line:
                break
        process.send_signal(signal.SIGINT)
        out, said = process.communicate(timeout=store.timeout)
    finally:
        process.kill()
    assert process.returncode == 130, said
    assert out.endswith(GO_ON) and said.endswith("interrupted; what was logged until then is kept\n")
    (finished,) = store.runs()
    assert finished.info.status == "FINISHED"


@pytest.mark.slow
def test_every_ctrl_c_is_answered_at_once_and_the_second_waits_no_more(store: Store) -> None:
    process = subprocess.Popen(
        store.command(*LONG), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, bufsize=1
    )
    try:
        wait_until(lambda: bool(store.runs()) and bool(store.runs()[0].data.metrics))
        worker = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()[0]
        subprocess.run(["kill", "-STOP", worker], check=True)
        process.send_signal(signal.SIGINT)
        assert process.stderr
        first = process.stderr.readline()
        process.send_signal(signal.SIGINT)
        said = process.stderr.read()
        process.wait(store.timeout)
    finally:
        process.kill()
    assert first == "baseline s0: stopping after this update, with a checkpoint; Ctrl-C again stops at once\n"
    assert process.returncode == 130 and said.endswith("interrupted; what was logged until then is kept\n")
