"""A job of several ranks ends with the first of them, says which one that was, and leaves no process behind."""

from __future__ import annotations

import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest

from msaccel.distributed.barrier import GONE
from msaccel.launch import outcome as endings
from msaccel.launch.job import Result
from msaccel.launch.job_folder import JobFolder
from msaccel.launch.peers import Peers
from msaccel.launch.processes import Process, Processes
from msaccel.launch.rank_env import free_port
from msaccel.schema import Config
from tests.running import SMALL, Store, ranks, soak

pytestmark = pytest.mark.slow

LONG = (
    "model=mlp", "data=synthetic", "data.train_size=340", "data.test_size=70", "train.epochs=100000",
    "train.eval_every=1000",
)  # fmt: skip
SECONDS_TO_START = 600
SECONDS_TO_END = 400  # only a hang reaches them


@dataclass
class Launcher:
    """One `run.py` of a job."""

    popen: subprocess.Popen[str]
    errors: Path

    def said(self) -> str:
        """The last line of its standard error."""
        return self.errors.read_text().rstrip("\n").splitlines()[-1]

    def processes(self) -> dict[str, psutil.Process]:
        """All that it has started, by rank; and the scheduler, the guard, and the server that has forked the ranks."""
        found = ranks(self.popen.pid)
        for process in psutil.Process(self.popen.pid).children(recursive=True):
            with suppress(psutil.NoSuchProcess):
                what = f"{' '.join(process.cmdline())} "
                kind = next((kind for kind in ("scheduler", "fork_server") if f".{kind} " in what), "guard")
                if process not in found.values():
                    found[kind] = process
        return found


class Jobs:
    """Jobs of a store, and all the processes of theirs that were ever seen."""

    def __init__(self, store: Store, stack: ExitStack) -> None:
        self.store, self.stack = store, stack
        self.seen: list[psutil.Process] = []

    def start(self, *overrides: str) -> Launcher:
        errors = self.store.folder / f"errors-{time.monotonic_ns()}"
        with errors.open("w") as stream:
            popen = subprocess.Popen(
                self.store.command(*overrides),
                stdout=subprocess.DEVNULL,
                stderr=stream,
                text=True,
                cwd=self.store.folder,
            )
        self.stack.callback(popen.kill)
        return Launcher(popen, errors)

    def train(self, *launchers: Launcher) -> list[dict[str, psutil.Process]]:
        """Waits until there is a curve; returns the processes of each launcher."""
        end = time.monotonic() + SECONDS_TO_START
        while not self.logged():
            ended = [launcher.said() for launcher in launchers if launcher.popen.poll() is not None]
            assert not ended and time.monotonic() < end, ended
            time.sleep(0.3)
        found = [launcher.processes() for launcher in launchers]
        self.seen += [process for processes in found for process in processes.values()]
        return found

    def logged(self) -> int:
        """Log points of the only run so far."""
        runs = self.store.runs()
        return len(self.store.client.get_metric_history(runs[0].info.run_id, "train/loss")) if runs else 0

    def status(self) -> str:
        (run,) = self.store.runs()
        assert self.logged() > 0
        return run.info.status

    def left(self) -> list[str]:
        """Command lines of the job's processes that still run: of those seen, and of any that names the store."""
        named = [process for process in psutil.process_iter() if str(self.store.folder) in " ".join(_command(process))]
        running = [process for process in {*self.seen, *named} if _runs(process)]
        return [" ".join(_command(process)) for process in running]


def _command(process: psutil.Process) -> list[str]:
    try:
        return process.cmdline()
    except psutil.Error:
        return []


def _runs(process: psutil.Process) -> bool:
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


@pytest.fixture
def jobs(store: Store) -> Iterator[Jobs]:
    with ExitStack() as stack:
        yield Jobs(store, stack)


def two_servers(*overrides: str) -> list[tuple[str, ...]]:
    """What to type on server 0 and on server 1."""
    common = ("device=cpu2x2", f"device.master=127.0.0.1:{two_ports()}", *overrides)
    return [(*common, f"device.server_rank={server}") for server in (0, 1)]


def two_ports() -> int:
    """A free port whose next one is free too."""
    while True:
        port = free_port()
        with suppress(OSError), socket.create_server(("127.0.0.1", port + 1)):
            return port


# from what the processes leave behind


@dataclass
class Outcome:
    """What `find_outcome` sees of a process."""

    returncode: int | None
    pid: int = 0

    def poll(self) -> int | None:
        return self.returncode


def left_behind(folder: JobFolder, *ends: tuple[int | None, str]) -> Processes:
    """Ranks by exit code and message; no message: killed before it could write one."""
    for rank, (_, message) in enumerate(ends):
        if message:
            folder.write(f"rank-{rank}.json", {"status": "FAILED", "message": message})
    codes = [code for code, _ in ends]
    return Processes([Process(f"rank {n}", n, Outcome(code), None) for n, code in enumerate(codes)])  # type: ignore[arg-type]


KILLED = (-9, "")
LOST = (1, GONE)
DATA = (1, "the file is damaged.")


@pytest.mark.parametrize(
    ("ends", "elsewhere", "said"),
    [
        ((LOST, DATA, LOST, LOST), None, "rank 1: the file is damaged."),
        ((DATA, DATA, DATA, DATA), None, "the file is damaged."),
        ((LOST, LOST, KILLED, LOST), "another thing", "rank 2 was ended by SIGKILL"),
        ((LOST, DATA, KILLED, LOST), None, "rank 2 was ended by SIGKILL"),
        ((LOST, LOST, LOST, LOST), "rank 5: so it was.", "rank 5: so it was."),
        ((LOST, LOST, (None, ""), LOST), None, "rank 2 no longer answers the other ranks."),
        (((0, ""), (3, ""), LOST, LOST), None, "rank 1 ended with exit code 3 and left no result"),
        (((None, ""),) * 4, "server 1 is gone.", "server 1 is gone."),
    ],
)
def test_the_cause_is_named(
    tmp_path: Path,
    composed: Callable[..., Config],
    ends: tuple[tuple[int | None, str], ...],
    elsewhere: str | None,
    said: str,
) -> None:
    folder = JobFolder(tmp_path)
    processes = left_behind(folder, *ends)
    if ends[0][1]:
        folder.finish(Result("job", "FAILED", message=ends[0][1]))
    told = endings.JobOutcome("FAILED", elsewhere) if elsewhere else None
    found = endings.find_outcome(folder, composed("device=cpu4"), processes, told, Peers())
    assert found.status == "FAILED" and found.message.startswith(said)


def test_a_server_without_a_link_finishes_by_itself(tmp_path: Path, composed: Callable[..., Config]) -> None:
    processes = left_behind(JobFolder(tmp_path), (0, ""), (0, ""))
    config = composed("device=cpu2x2", "device.server_rank=1")  # as with a rank table
    assert endings.find_outcome(JobFolder(tmp_path), config, processes, None, Peers()).status == "FINISHED"


SWALLOWED = """
import os, signal, time
from msaccel.training import worker

class Thing:
    def __del__(self):
        os.kill(os.getpid(), signal.SIGINT)

worker.listen()
try:
    Thing()
    time.sleep(20)
except KeyboardInterrupt:
    print("interrupted")
"""


def test_an_interrupt_in_a_destructor_is_not_lost() -> None:
    ended = subprocess.run([sys.executable, "-c", SWALLOWED], capture_output=True, text=True, timeout=SECONDS_TO_END)
    assert (ended.stdout, ended.stderr) == ("interrupted\n", "")


# one server


@pytest.mark.parametrize("who", ["2", *soak("0", "scheduler")])
def test_a_process_that_is_killed(jobs: Jobs, who: str) -> None:
    launcher = jobs.start("device=cpu4", *LONG, "tracking.every=20")
    (processes,) = jobs.train(launcher)
    assert sorted(processes) == ["0", "1", "2", "3", "fork_server", "guard", "scheduler"]
    processes[who].kill()
    assert launcher.popen.wait(SECONDS_TO_END) == 1
    named = "scheduler" if who == "scheduler" else f"rank {who}"
    assert re.fullmatch(rf"baseline s0: {named} was ended by SIGKILL .*", launcher.said())
    assert jobs.status() == "FAILED"
    assert len(list(jobs.store.folder.glob("jobs/*/result.json"))) == 1
    assert jobs.left() == []


def test_a_rank_that_stands_still(jobs: Jobs) -> None:
    launcher = jobs.start("device=cpu4", "device.ranks_per_server=3", *LONG, "tracking.every=20")
    (processes,) = jobs.train(launcher)
    processes["2"].suspend()
    assert launcher.popen.wait(SECONDS_TO_END) == 1  # MindSpore's collectives wait for half a minute
    assert launcher.said().endswith("baseline s0: rank 2 no longer answers the other ranks.")
    assert jobs.status() == "FAILED"
    assert jobs.left() == []


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL, *soak(signal.SIGTERM)])
def test_a_launcher_that_is_ended(jobs: Jobs, number: signal.Signals) -> None:
    launcher = jobs.start("device=cpu4", "device.ranks_per_server=2", *LONG, "tracking.every=20")
    jobs.train(launcher)
    launcher.popen.send_signal(number)
    code = launcher.popen.wait(SECONDS_TO_END)
    if number == signal.SIGKILL:
        psutil.wait_procs(jobs.seen, SECONDS_TO_END)
    else:
        assert code == 130
        assert launcher.said() == "interrupted; what was logged until then is kept"
    assert jobs.left() == []
    assert jobs.status() == "KILLED"
    (run,) = jobs.store.runs()
    assert "curves.png" in jobs.store.artifacts(run)
    assert len(list(jobs.store.folder.glob("jobs/*/resume/update-*.safetensors"))) == 1, "from all ranks, at the end"


def waits(process: psutil.Process) -> bool:
    """Whether a process hardly computes for a second."""
    before = sum(process.cpu_times()[:2])
    time.sleep(1)
    return process.status() != psutil.STATUS_RUNNING and sum(process.cpu_times()[:2]) - before < 0.1


def test_ranks_end_with_their_launcher_while_the_cluster_forms(jobs: Jobs) -> None:
    launcher = jobs.start("device=cpu4", "device.ranks_per_server=2", *LONG)
    end = time.monotonic() + SECONDS_TO_START
    while "1" not in (processes := launcher.processes()):
        assert time.monotonic() < end
        time.sleep(0.01)
    processes["1"].suspend()  # so the cluster does not form, and rank 0 waits for it with Python's lock held
    while not waits(processes["0"]):
        assert time.monotonic() < end
    jobs.seen += launcher.processes().values()
    launcher.popen.kill()
    psutil.wait_procs(jobs.seen, SECONDS_TO_END)
    assert jobs.left() == []


# several servers


@pytest.mark.soak
def test_two_servers_train_one_job(jobs: Jobs) -> None:
    """The first of them waits for the other; in `tests/distributed/test_real_ranks.py` the second begins."""
    commands = two_servers(*SMALL)
    launchers = {0: jobs.start(*commands[0])}
    time.sleep(2)
    launchers[1] = jobs.start(*commands[1])
    ranks: dict[int, set[str]] = {0: set(), 1: set()}
    while any(launcher.popen.poll() is None for launcher in launchers.values()):
        for server, launcher in launchers.items():
            with suppress(psutil.NoSuchProcess):
                ranks[server] |= {*launcher.processes()}
        time.sleep(0.5)
    said = [launcher.errors.read_text() for launcher in launchers.values()]
    assert [launcher.popen.returncode for launcher in launchers.values()] == [0, 0], said
    assert ranks == {0: {"0", "1", "fork_server", "guard", "scheduler"}, 1: {"2", "3", "fork_server", "guard"}}
    assert jobs.status() == "FINISHED"
    assert jobs.left() == []


@pytest.mark.parametrize(
    ("who", "number", "status", "codes", "said"),
    [
        ("2", signal.SIGKILL, "FAILED", (1, 1), "rank 2 was ended by SIGKILL"),
        ("launcher", signal.SIGKILL, "FAILED", (1, -9), "server 1 is gone"),
        pytest.param("0", signal.SIGKILL, "FAILED", (1, 1), "rank 0 was ended by SIGKILL", marks=pytest.mark.soak),
        pytest.param("launcher", signal.SIGINT, "KILLED", (130, 130), "interrupted", marks=pytest.mark.soak),
    ],
)
def test_what_ends_on_one_server_ends_on_both(
    jobs: Jobs, who: str, number: signal.Signals, status: str, codes: tuple[int, int], said: str
) -> None:
    per_server = 2 if who == "2" else 1
    commands = two_servers(*LONG, f"device.ranks_per_server={per_server}", "tracking.every=20")
    launchers = [jobs.start(*command) for command in commands]
    here, there = jobs.train(*launchers)
    if who == "launcher":
        launchers[1].popen.send_signal(number)
    else:
        {**here, **there}[who].send_signal(number)
    end = time.monotonic() + SECONDS_TO_END
    found = [launcher.popen.wait(end - time.monotonic()) for launcher in launchers]
    assert tuple(found) == codes
    assert all(said in launcher.said() for launcher, code in zip(launchers, found, strict=True) if code > 0)
    psutil.wait_procs(jobs.seen, SECONDS_TO_END)
    assert jobs.left() == []
    assert jobs.status() == status


# nothing starts


def ended(launcher: Launcher) -> tuple[int, str]:
    return launcher.popen.wait(SECONDS_TO_END), launcher.said()


def test_a_port_that_is_taken(jobs: Jobs) -> None:
    command, _ = two_servers(*SMALL)
    port = int(next(word for word in command if "master" in word).split(":")[1])
    for taken in (port, port + 1):
        with socket.create_server(("127.0.0.1", taken)):
            code, said = ended(jobs.start(*command))
        assert code == 2 and f"device.master=127.0.0.1:{port}: port {taken} is taken; write device.master=" in said
    assert jobs.store.runs() == [] and jobs.left() == []


@pytest.mark.parametrize(
    ("server", "said"),
    [(0, "server 1 of 2 did not come to 127.0.0.1:"), (1, "server 0 does not answer at device.master")],
)
def test_a_server_that_never_comes(jobs: Jobs, server: int, said: str) -> None:
    command = two_servers(*SMALL, "device.timeout_s=3")[server]
    code, found = ended(jobs.start(*command))
    assert code == 1 and said in found and "within device.timeout_s=3" in found
    assert jobs.store.runs() == [] and jobs.left() == []


@pytest.mark.parametrize(  # tests/launch/test_server_rendezvous.py has all that such servers say, without launchers
    ("key", "values"),
    [
        ("device.ranks_per_server", ("2", "3")),
        pytest.param("train.batch_size", ("16", "64"), marks=pytest.mark.soak),
    ],
)
def test_servers_that_were_started_otherwise(jobs: Jobs, key: str, values: tuple[str, str]) -> None:
    commands = two_servers(*SMALL)
    launchers = [jobs.start(*command, f"{key}={value}") for command, value in zip(commands, values, strict=True)]
    expected = f"server 1 was started with {key}={values[1]} and server 0 with {key}={values[0]}; type the same"
    for launcher in launchers:
        code, said = ended(launcher)
        assert code == 1 and expected in said
    assert jobs.store.runs() == [] and jobs.left() == []


@pytest.mark.soak
def test_the_same_server_twice(jobs: Jobs) -> None:
    first, second = two_servers(*SMALL, "device.servers=3")
    launchers = [jobs.start(*command) for command in (first, second, second)]
    for launcher in launchers:
        code, said = ended(launcher)
        assert code == 1 and "two servers were started with device.server_rank=1; give each its own." in said
    assert jobs.store.runs() == [] and jobs.left() == []
