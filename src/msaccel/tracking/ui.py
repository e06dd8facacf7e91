"""`make ui`: MLflow's server, for this machine alone, and the links worth opening."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from http.client import HTTPConnection, HTTPException
from types import FrameType
from typing import IO

from msaccel.errors import UserError
from msaccel.tracking import ui_links
from msaccel.tracking.credentials import is_server, sqlite_file, without_password
from msaccel.tracking.store import address, open_store

_HOST = "127.0.0.1"
_SECONDS_TO_START = 120.0
_SECONDS_TO_END = 5.0
_LINES_OF_LOG = 20


def serve(tracking_uri: str, port: int = ui_links.DEFAULT_PORT) -> int:
    """Prints links to the runs of every experiment and keeps the UI open until Ctrl-C or SIGTERM.

    A store that is a server has its UI already: nothing is started, and the links point there.

    Returns:
        The exit code.

    Raises:
        UserError: there are no runs yet, the port cannot be used, or MLflow's server does not come up.
    """
    if is_server(tracking_uri):
        print("\n".join(_overview(tracking_uri, port)))
        return 0
    _check_port(port)
    overview = _overview(tracking_uri, port)
    try:
        with _on_ending(_interrupt), _server(tracking_uri, port) as server:
            print("\n".join([*overview, "Ctrl-C ends the server."]), flush=True)
            raise UserError(f"MLflow's server ended by itself with exit code {server.wait()}; start it again.")
    except KeyboardInterrupt:
        return 0


def _overview(tracking_uri: str, port: int) -> list[str]:
    database = sqlite_file(tracking_uri)
    if database is None or database.exists():  # opening a store makes its file
        lines = ui_links.overview(open_store(tracking_uri), ui_links.server_of(tracking_uri, port))
        if lines:
            return lines
    raise UserError(f"There are no runs in {without_password(tracking_uri)} yet; train first: python run.py.")


def _check_port(port: int) -> None:
    if not 0 < port < 65536:
        example = f"--port={ui_links.DEFAULT_PORT}"
        raise UserError(f"--port={port} is out of range (1 to 65535); write for example {example}.")
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # a port that was in use a moment ago is free
        try:
            probe.bind((_HOST, port))
        except OSError as error:
            raise UserError(
                f"--port={port} cannot be used ({error.strerror}; perhaps the UI is open already); "
                f"write another one, for example --port={port % 65535 + 1}."
            ) from error


@contextmanager
def _server(tracking_uri: str, port: int) -> Iterator[subprocess.Popen[bytes]]:
    """MLflow's server while the block runs; its whole process group ends with the block."""
    command = ["mlflow", "server", "--host", _HOST, "--port", str(port), "--workers", "1"]
    environment = {
        "MLFLOW_DISABLE_TELEMETRY": "true",
        "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false",  # another process, for judging GenAI traces
        **os.environ,
        # Not as an argument, which every user of the machine could read: it may hold a password.
        "MLFLOW_BACKEND_STORE_URI": address(tracking_uri),
    }
    with tempfile.TemporaryFile() as log:
        server = subprocess.Popen(
            [sys.executable, "-m", *command, "--uvicorn-opts", "--no-access-log"],
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            if not _answers(server, port):
                print(_tail(log), file=sys.stderr)
                raise UserError("MLflow's server did not come up; its last lines, above, say why.")
            yield server
        finally:
            _end(server)


def _answers(server: subprocess.Popen[bytes], port: int) -> bool:
    """Waits for the server's first answer; False when it ended or took too long."""
    deadline = time.monotonic() + _SECONDS_TO_START
    while server.poll() is None and time.monotonic() < deadline:
        connection = HTTPConnection(_HOST, port, timeout=5)  # unlike urllib, never through a proxy
        try:
            connection.request("GET", "/health")
            return connection.getresponse().status == 200
        except (OSError, HTTPException):
            time.sleep(0.2)
        finally:
            connection.close()
    return False


def _end(server: subprocess.Popen[bytes]) -> None:
    """Ends the server and its workers, undisturbed by a second Ctrl-C."""
    nobody_left = suppress(ProcessLookupError, PermissionError)  # the latter on macOS
    with _on_ending(signal.SIG_IGN), nobody_left:
        os.killpg(server.pid, signal.SIGTERM)
        with suppress(subprocess.TimeoutExpired):
            server.wait(_SECONDS_TO_END)
        os.killpg(server.pid, signal.SIGKILL)
    server.wait()


def _tail(log: IO[bytes]) -> str:
    log.seek(0)
    return "\n".join(log.read().decode(errors="replace").splitlines()[-_LINES_OF_LOG:])


@contextmanager
def _on_ending(handler: Callable[[int, FrameType | None], None] | signal.Handlers) -> Iterator[None]:
    """Handles the signals that end a program while the block runs."""
    before = {ending: signal.signal(ending, handler) for ending in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}
    try:
        yield
    finally:
        for ending, former in before.items():
            signal.signal(ending, former)


def _interrupt(signal_number: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt
