"""The processes of one job on this machine: started together, watched, and ended together.

Processes end with their launcher even when that is killed: each waits for the end of its standard input, and a watchdog
(`python -m msaccel.launch.processes PID...`) ends those that cannot, since MindSpore holds Python's lock for as long
as it waits in a collective or for the cluster to form.
"""

from __future__ import annotations

import logging
import math
import os
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import nullcontext, suppress
from dataclasses import dataclass, field
from pathlib import Path

from msaccel.launch.fork_client import ForkedProcess, fork
from msaccel.tracking.stopping import SECONDS_TO_END

_log = logging.getLogger(__name__)
INTERRUPT = signal.SIGUSR1  # what tells a rank to end


class StartedProcess(subprocess.Popen[bytes]):
    """A process whose state can be asked for when a signal may raise an exception at any moment.

    `Popen` takes a lock to ask. The exception may come just after that and leave it taken, and `wait` then hangs.
    """

    def poll(self) -> int | None:
        if self.returncode is None:
            try:
                pid, status = os.waitpid(self.pid, os.WNOHANG)
            except ChildProcessError:  # an exception came before the exit code was kept
                pid, status = self.pid, signal.SIGKILL
            if pid:
                self.returncode = os.waitstatus_to_exitcode(status)
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        until = math.inf if timeout is None else time.monotonic() + timeout
        while (code := self.poll()) is None:
            if timeout is not None and time.monotonic() > until:
                raise subprocess.TimeoutExpired(self.args, timeout)
            time.sleep(0.01)
        return code


@dataclass(frozen=True)
class Process:
    """One process of the job.

    Attributes:
        label: `rank 3`, or `scheduler`.
        rank: its number; None for the scheduler.
        popen: the process.
        log: where its output goes; None: to this terminal.
    """

    label: str
    rank: int | None
    popen: StartedProcess | ForkedProcess
    log: Path | None


@dataclass
class Processes:
    """The ranks of a job on this machine, and its scheduler if that is here.

    Attributes:
        watchdog: ends them if the launcher is killed.
        memory_kills: the system's count of processes killed for memory when they were started.
    """

    all: list[Process] = field(default_factory=list)
    watchdog: StartedProcess | None = None
    memory_kills: int = field(default_factory=lambda: memory_kills())

    @property
    def ranks(self) -> list[Process]:
        return [process for process in self.all if process.rank is not None]

    def start(
        self, label: str, rank: int | None, command: Sequence[str], env: Mapping[str, str], log: Path | None
    ) -> None:
        with nullcontext() if log is None else log.open("wb") as output:
            popen = StartedProcess(
                command,
                stdin=subprocess.PIPE,  # closes when the launcher is gone, even if it was killed
                stdout=output,
                stderr=output and subprocess.STDOUT,
                env=dict(env),
                start_new_session=True,  # Ctrl-C reaches the launcher alone, which passes it on once
            )
        self.all.append(Process(label, rank, popen, log))
        _log.debug("%s: process %d: %s", label, popen.pid, shlex.join(command))

    def fork(self, rank: int, folder: Path, env: Mapping[str, str], own: Mapping[str, str], log: Path | None) -> None:
        """Starts a rank as a fork of a process with the environment `env`; the rank adds the variables in `own`."""
        with nullcontext() if log is None else log.open("wb") as output:
            forked = fork(folder, env, own, output)
        self.all.append(Process(f"rank {rank}", rank, forked, log))
        _log.debug("rank %d: process %d, forked", rank, forked.pid)

    def start_watchdog(self) -> None:
        """Starts the watchdog of all that have been started."""
        command = [sys.executable, "-m", __name__, *(str(process.popen.pid) for process in self.all)]
        self.watchdog = StartedProcess(command, stdin=subprocess.PIPE, start_new_session=True)

    def failed(self) -> list[Process]:
        """The processes that ended with a failure."""
        return [process for process in self.all if process.popen.poll()]

    def running(self) -> list[Process]:
        """The ranks that have not ended."""
        return [process for process in self.ranks if process.popen.poll() is None]

    def interrupt(self) -> None:
        """Asks the first rank to end, while the others still answer it, and ends all."""
        first = next((process.popen for process in self.ranks if process.rank == 0), None)
        if first and first.poll() is None:
            first.send_signal(INTERRUPT)
            with suppress(subprocess.TimeoutExpired):
                first.wait(SECONDS_TO_END)
        self.kill()

    def kill(self) -> None:
        """Ends what still runs; a rank inside a collective or a compilation hears nothing else."""
        for process in self.all:
            if process.popen.poll() is None:
                with suppress(ProcessLookupError):  # a forked one that has just ended
                    os.killpg(process.popen.pid, signal.SIGKILL)
            process.popen.wait()
            if process.popen.stdin:
                process.popen.stdin.close()
        if self.watchdog and self.watchdog.stdin:
            self.watchdog.kill()
            self.watchdog.wait()
            self.watchdog.stdin.close()
            self.watchdog = None


def end_with_launcher(groups: Sequence[int]) -> None:
    """Waits until the launcher is gone, and ends the process groups that are still there a while later."""
    os.read(0, 1)  # nothing is ever written
    until = time.monotonic() + SECONDS_TO_END
    while time.monotonic() < until:
        groups = [group for group in groups if _reaches(group, 0)]
        time.sleep(0.1)
    for group in groups:
        _reaches(group, signal.SIGKILL)


def _reaches(group: int, number: int) -> bool:
    try:
        os.killpg(group, number)
    except (ProcessLookupError, PermissionError):  # gone, or another process has its number by now
        return False
    return True


def memory_kills() -> int:
    """How many processes the system has killed since its start because memory ran out; 0 if unknown."""
    with suppress(OSError, ValueError):
        for line in Path("/proc/vmstat").read_text().splitlines():
            if line.startswith("oom_kill "):
                return int(line.split()[1])
    return 0


def last_lines(process: Process, most: int = 20) -> list[str]:
    """The end of a process's log, each line with its label in front."""
    if process.log is None or not process.log.exists():
        return []
    lines = process.log.read_text(errors="replace").splitlines()
    return [f"{process.label} | {line}" for line in lines[-most:]]


if __name__ == "__main__":
    end_with_launcher([int(text) for text in sys.argv[1:]])
