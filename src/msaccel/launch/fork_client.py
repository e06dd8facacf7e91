"""Workers that are forked from a process which has imported MindSpore once: a sweep's jobs, the ranks of a cluster.

That process is `msaccel.training.fork_server`. It is started for the first job that a process launches, and ends when
the launching process does, even if that is killed: the connection between them then closes.
"""

from __future__ import annotations

import json
import os
import select
import signal
import socket
import subprocess
import sys
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

COMMAND = [sys.executable, "-m", "msaccel.training.fork_server"]
LONGEST = 20_000  # bytes of a request: two paths, and the variables of a rank alone


@dataclass
class ForkedProcess:
    """A process that the server has forked, with the part of `subprocess.Popen`'s interface that the launcher uses.

    Attributes:
        stdin: a pipe that nothing is written to; the process ends when it closes.
        connection: where the server says how it ended.
        returncode: None while it runs; negative: the signal that ended it.
    """

    pid: int
    stdin: IO[bytes]
    connection: socket.socket
    returncode: int | Any = None

    def poll(self) -> int | None:
        with suppress(subprocess.TimeoutExpired):
            self.wait(0)
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """Waits for the end.

        Raises:
            TimeoutExpired: the process still runs after so many seconds.
        """
        if self.returncode is None:
            if not select.select([self.connection], [], [], timeout)[0]:
                raise subprocess.TimeoutExpired(COMMAND, timeout or 0.0)
            if code := _receive(self.connection):
                self.returncode = int(code)
            else:  # the server was killed, and nobody else can say how the process ends
                with suppress(ProcessLookupError):
                    os.killpg(self.pid, signal.SIGKILL)
                self.returncode = -signal.SIGKILL
            self.connection.close()
        return self.returncode

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            with suppress(ProcessLookupError):  # it has just ended
                os.kill(self.pid, number)


@dataclass
class _Server:
    """The process that forks, and the environment in which it did its imports."""

    env: dict[str, str]
    process: subprocess.Popen[bytes] = field(init=False)
    connection: socket.socket = field(init=False)

    def __post_init__(self) -> None:
        self.connection, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            self.process = subprocess.Popen(
                [*COMMAND, str(theirs.fileno())],
                stdin=subprocess.DEVNULL,
                env=self.env,
                pass_fds=[theirs.fileno()],
                start_new_session=True,  # Ctrl-C is for the launcher
            )

    def fork(self, folder: Path, own: Mapping[str, str], output: list[int]) -> ForkedProcess:
        reads, writes = os.pipe()
        stdin = os.fdopen(writes, "wb", buffering=0)
        connection, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        given = [reads, theirs.fileno(), *output]
        try:
            with suppress(BrokenPipeError):
                socket.send_fds(self.connection, [json.dumps([os.getcwd(), str(folder), dict(own)]).encode()], given)
            pid = _receive(self.connection)
        finally:
            os.close(reads)
            theirs.close()
        if pid:
            return ForkedProcess(int(pid), stdin, connection)
        return ForkedProcess(self.process.pid, stdin, connection, self.process.wait())  # it has said why

    def end(self) -> None:
        self.connection.close()
        self.process.wait()


_server: _Server | None = None


def fork(
    folder: Path, env: Mapping[str, str], own: Mapping[str, str], output: IO[bytes] | None = None
) -> ForkedProcess:
    """Starts a worker of the job in the folder, in a process group of its own.

    The first worker, and any whose environment differs from that of the one before, waits for a server's imports.

    Args:
        env: the server's environment and the worker's.
        own: variables of the worker alone.
        output: where the worker writes; None: to this terminal.
    """
    global _server
    server, _server = _server, None
    if server and (server.env != env or server.process.poll() is not None):
        server.end()
        server = None
    server = server or _Server(dict(env))
    forked = server.fork(folder, own, [] if output is None else [output.fileno()])
    _server = server  # only now: after a Ctrl-C its late answer would be taken for that of the next request
    return forked


def _receive(connection: socket.socket) -> bytes:
    """A message of the server; empty when it is gone."""
    try:
        return connection.recv(LONGEST)
    except ConnectionResetError:
        return b""
