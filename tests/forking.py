"""Programs in forks of a process that has imported Hydra, MLflow and MindSpore: a job without the 6 s of CPU time that
imports take.

`python -m tests.forking`, started by the first run of a repository and a number of threads, reads a request a line and
answers with the process that it forks, then with its exit code, which for one in the background goes to a file. In such
a process the launcher and the worker are forks too, the worker as in a sweep.
"""

from __future__ import annotations

import json
import os
import runpy
import select
import shutil
import signal
import socket
import sqlite3
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from subprocess import PIPE, CompletedProcess, Popen, TimeoutExpired
from threading import Lock
from typing import IO, Any, NoReturn

from hydra.core.plugins import Plugins
from sqlalchemy import event
from sqlalchemy.engine import Engine

from msaccel.config.compose import from_overrides
from msaccel.launch import fork_client, launcher
from msaccel.launch.job import Task
from msaccel.launch.job_folder import JobFolder
from msaccel.launch.processes import Processes
from msaccel.schema import Config
from msaccel.tracking import store

ROOT = Path(__file__).parents[1]
_one_at_a_time = Lock()  # tests may run threads; the server answers in turn


def do_not_wait_for_the_disk() -> None:
    """SQLite leaves it to the system when it writes its files, which halves the time of a test that plants runs.

    What it writes is there for every process at once; only a crash of the whole machine could lose it.
    """

    @event.listens_for(Engine, "connect")
    def connected(connection: object, record: object) -> None:
        if isinstance(connection, sqlite3.Connection):
            connection.execute("PRAGMA synchronous=OFF")


def run(
    command: Sequence[str], folder: Path, env: Mapping[str, str], timeout: float, root: Path = ROOT
) -> CompletedProcess[str]:
    """Runs `run.py`, or with -m a module, with these arguments to its end, in the folder, with the packages of `root`.

    Raises:
        TimeoutExpired: it has been killed after so many seconds.
    """
    with _one_at_a_time, tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as err:
        server = _start_server(root, _threads(command))
        assert server.stdout
        process = _ask(server, command, folder, env, out, err)
        try:
            if not select.select([server.stdout], [], [], timeout)[0]:
                raise TimeoutExpired(list(command), timeout)
            code = int(server.stdout.readline())
        except BaseException:
            server.kill()
            _start_server.cache_clear()
            with suppress(ProcessLookupError):
                os.killpg(process, signal.SIGKILL)
            raise
        out.seek(0)
        err.seek(0)
        return CompletedProcess(list(command), code, out.read(), err.read())


@dataclass
class Background:
    """A process that goes on while its test does, with what tests use of `subprocess.Popen`."""

    args: list[str]
    pid: int
    out: IO[str]
    err: IO[str]
    ended: IO[str]
    returncode: int | None = None

    def poll(self) -> int | None:
        self.ended.seek(0)
        if said := self.ended.read():
            self.returncode = int(said)
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        until = None if timeout is None else time.monotonic() + timeout
        while (code := self.poll()) is None:
            if until is not None and time.monotonic() > until:
                raise TimeoutExpired(self.args, timeout or 0.0)
            time.sleep(0.01)
        return code

    def communicate(self, timeout: float | None = None) -> tuple[str, str]:
        """What it has said, once it has ended."""
        self.wait(timeout)
        self.out.seek(0)
        self.err.seek(0)
        return self.out.read(), self.err.read()

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            with suppress(ProcessLookupError):  # it has just ended
                os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


def start(command: Sequence[str], folder: Path, env: Mapping[str, str], root: Path = ROOT) -> Background:
    """Starts what `run` runs, for tests in whose middle it is still at work."""
    out, err, ended = (tempfile.TemporaryFile("w+") for _ in range(3))  # noqa: SIM115 - they stay open with what it returns
    with _one_at_a_time:
        process = _ask(_start_server(root, _threads(command)), command, folder, env, out, err, ended)
    return Background(list(command), process, out, err, ended)


def _threads(command: Sequence[str]) -> str:
    return "1" if any(word.startswith(("device=cpu4", "device=cpu2x2")) for word in command) else "2"


def _ask(server: Popen[bytes], command: Sequence[str], folder: Path, env: Mapping[str, str], *files: IO[str]) -> int:
    """Sends a request; returns the process that was forked."""
    assert server.stdin and server.stdout
    paths = [f"/proc/{os.getpid()}/fd/{file.fileno()}" for file in files]
    server.stdin.write(json.dumps([list(command), str(folder), dict(env), *paths]).encode() + b"\n")
    return int(server.stdout.readline())


@cache
def _start_server(root: Path, threads: str) -> Popen[bytes]:
    """The threads are those of the libraries that are imported, which later ones cannot change."""
    env = launcher.environment(from_overrides([])) | {"OMP_NUM_THREADS": threads, "OPENBLAS_NUM_THREADS": threads}
    if root != ROOT:
        env["PYTHONPATH"] = f"{root}/src:{root}"
    command = [sys.executable, "-m", "tests.forking"]
    return Popen(command, stdin=PIPE, stdout=PIPE, env=env, cwd=root, bufsize=0)  # `select` sees no buffer


def serve(requests: IO[str]) -> None:
    """Forks a launcher for each request, one after the other but for those in the background."""
    from msaccel.cli.commands import compare, data, eval, study  # noqa: F401
    from msaccel.compare.render import write  # noqa: F401 - for the report at the end of a sweep
    from msaccel.sweeps import parent_run, seed_groups  # noqa: F401
    from msaccel.training import fork_server

    fork_server.import_all()
    Plugins.instance()  # Hydra looks for them once a process
    from_overrides(["model=mlp", "accel=[accum]"])  # what its parser learns stays, too
    with tempfile.TemporaryDirectory() as folder:
        do_not_wait_for_the_disk()
        store._make = copies(Path(folder) / "empty.db")
        store._make(Path(folder) / "first.db")
        for line in requests:
            command, place, env, out, err, *ended = json.loads(line)
            if ended and os.fork():
                continue  # with the next request; the fork, which nobody waits for, does what follows
            code = open(ended[0], "w") if ended else sys.stdout  # noqa: SIM115 - to the end
            process = os.fork()
            if process == 0:
                _become_launcher(command, place, env, out, err)
            print(process, flush=True)
            print(os.waitstatus_to_exitcode(os.waitpid(process, 0)[1]), file=code, flush=True)
            if ended:
                os._exit(0)


def copies(empty: Path) -> Callable[[Path], None]:
    """Makes an empty store once; what it gives makes copies of that, in milliseconds instead of seconds."""
    anew = store._make

    def make(database: Path) -> None:
        if not empty.exists():
            anew(empty)
        unfinished = database.with_name(f"{database.name}.part")
        shutil.copyfile(empty, unfinished)
        unfinished.replace(database)

    return make


def _become_launcher(command: list[str], folder: str, env: dict[str, str], *outputs: str) -> NoReturn:
    os.setsid()
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    for descriptor, path in enumerate(outputs, 1):
        os.dup2(os.open(path, os.O_WRONLY | os.O_APPEND), descriptor)
    os.chdir(folder)
    threads = os.environ["OMP_NUM_THREADS"]  # of the libraries that are imported
    _adopt(env)
    started, servers = launcher.start, {True: _Server, False: fork_client._Server}

    def start(config: Config, folder: JobFolder, task: Task, env: dict[str, str]) -> Processes:
        forks = env["OMP_NUM_THREADS"] == threads
        fork_client._Server = servers[forks]
        return started(config, folder, replace(task, sweep_id=task.sweep_id or "a fork") if forks else task, env)

    launcher.start = start
    code: Any = 1
    try:
        if command[0] == "-m":
            sys.argv = command[1:]
            runpy.run_module(command[1], run_name="__main__", alter_sys=True)
        else:
            sys.argv = command
            runpy.run_path(command[0], run_name="__main__")
        code = 0
    except SystemExit as exits:
        code = exits.code
    except BaseException:
        traceback.print_exc()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def _adopt(env: Mapping[str, str]) -> None:
    os.environ.clear()
    os.environ.update(env)


class _Server(fork_client._Server):
    """The process that forks workers, as a fork."""

    def __post_init__(self) -> None:
        self.connection, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.process = _Child(os.fork())
        if self.process.pid == 0:
            from msaccel.training.fork_server import serve

            self.connection.close()
            os.setsid()
            for number in (signal.SIGINT, signal.SIGTERM):
                signal.signal(number, signal.SIG_IGN)
            _adopt(self.env)
            serve(theirs)
            os._exit(0)
        theirs.close()


class _Child:
    """What the launcher uses of `subprocess.Popen`."""

    def __init__(self, pid: int) -> None:
        self.pid, self.returncode = pid, None

    def poll(self) -> int | None:
        return self._ended(os.WNOHANG)

    def wait(self) -> int | None:
        return self._ended(0)

    def _ended(self, options: int) -> int | None:
        if self.returncode is None:
            pid, status = os.waitpid(self.pid, options)
            self.returncode = os.waitstatus_to_exitcode(status) if pid else None
        return self.returncode


if __name__ == "__main__":
    serve(sys.stdin)
