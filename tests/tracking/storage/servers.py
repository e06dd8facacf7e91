"""Real servers on the loopback that a test stops and starts again: MLflow's own, PostgreSQL behind it, and a proxy."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from http.client import HTTPConnection, HTTPException
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from mlflow import MlflowClient
from mlflow.entities import Run

from msaccel.tracking import store as stores
from msaccel.tracking.store import open_store
from tests import forking
from tests.running import wait_until

HOST = "127.0.0.1"


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        return int(probe.getsockname()[1])


@dataclass
class MlflowServer:
    """`mlflow server` with its store in a folder, or in the database that is given."""

    folder: Path
    database: str = ""
    port: int = field(default_factory=free_port)
    process: subprocess.Popen[bytes] | None = None

    @property
    def uri(self) -> str:
        return f"http://{HOST}:{self.port}"

    @property
    def client(self) -> MlflowClient:
        return open_store(self.uri)

    def start(self) -> None:
        if not self.database and not (self.folder / "server.db").exists():
            stores._make(self.folder / "server.db")  # a copy; the server would take some fifty steps to make its tables
        command = ["server", "--host", HOST, "--port", str(self.port), "--workers", "1"]
        places = ["--backend-store-uri", self.database or f"sqlite:///{self.folder}/server.db"]
        with (self.folder / "server.log").open("ab") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "mlflow", *command, *places, "--artifacts-destination", f"{self.folder}/given"],
                env={
                    **os.environ,
                    "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false",
                    "MLFLOW_DISABLE_TELEMETRY": "true",
                    "PYTHONPATH": os.environ.get("PYTHONPATH", ""),
                },
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        wait_until(self.answers)

    def answers(self) -> bool:
        assert self.process and self.process.poll() is None, (self.folder / "server.log").read_text()[-2000:]
        connection = HTTPConnection(HOST, self.port, timeout=5)
        try:
            connection.request("GET", "/health")
            return connection.getresponse().status == 200
        except (OSError, HTTPException):
            return False
        finally:
            connection.close()

    def stop(self) -> None:
        """Gone in an instant, as after a crash: what it was answering is not answered."""
        if self.process:
            with suppress(ProcessLookupError):
                os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()

    def runs(self) -> list[Run]:
        client = self.client
        return client.search_runs([each.experiment_id for each in client.search_experiments()])

    def steps(self, run: Run) -> dict[str, list[int]]:
        """The updates at which each metric has points, as many times as it has them, in order."""
        client = self.client
        names = self.client.get_run(run.info.run_id).data.metrics
        return {name: sorted(p.step for p in client.get_metric_history(run.info.run_id, name)) for name in names}


def job(server: MlflowServer | Proxy, *overrides: str, **how: Any) -> subprocess.Popen[str] | forking.Background:
    """Starts a job that logs to a server; `how` are further arguments of `subprocess.Popen`."""
    root = Path(__file__).parents[3]
    places = [f"tracking.uri={server.uri}", f"hydra.run.dir={server.folder}/jobs/${{now:%H-%M-%S-%f}}"]
    command = [str(root / "run.py"), *places, *overrides]
    if not how:
        return forking.start(command, server.folder, os.environ)
    return subprocess.Popen(
        [sys.executable, *command],
        cwd=server.folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        **how,
    )


@dataclass
class Proxy:
    """Hands requests on to a server, and answers those that `loses` chooses itself, with 200 and `{}`."""

    server: MlflowServer
    loses: Callable[[str, bytes], bool]
    lost: int = 0
    port: int = 0
    _http: ThreadingHTTPServer = field(init=False)

    def __enter__(self) -> Proxy:
        proxy = self

        class Handler(BaseHTTPRequestHandler):
            def handle_one(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
                if proxy.loses(self.path, body):
                    proxy.lost += 1
                    status, answer = 200, b"{}"
                else:
                    onward = HTTPConnection(HOST, proxy.server.port, timeout=120)
                    headers = {key: value for key, value in self.headers.items() if key.lower() != "host"}
                    onward.request(self.command, self.path, body, headers)
                    response = onward.getresponse()
                    status, answer = response.status, response.read()
                    onward.close()
                self.send_response(status)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(answer)))
                self.end_headers()
                self.wfile.write(answer)

            do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = handle_one

            def log_message(self, format: str, *arguments: object) -> None: ...

        self._http = ThreadingHTTPServer((HOST, 0), Handler)
        self.port = self._http.server_port
        threading.Thread(target=self._http.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *raised: object) -> None:
        self._http.shutdown()
        self._http.server_close()

    @property
    def uri(self) -> str:
        return f"http://{HOST}:{self.port}"

    @property
    def folder(self) -> Path:
        return self.server.folder


@dataclass
class Postgres:
    """PostgreSQL, the machine's or of the package `pgserver`; run by another user where we are root."""

    port: int = field(default_factory=free_port)
    process: subprocess.Popen[bytes] | None = None

    def __post_init__(self) -> None:
        self.programs = programs()
        self.folder = Path(tempfile.mkdtemp(prefix="msaccel-postgres-"))  # pytest's own are closed to other users
        self.user = "nobody" if os.getuid() == 0 else None
        self.data = self.folder / "data"

    @property
    def uri(self) -> str:
        return f"postgresql+psycopg2://msaccel@{HOST}:{self.port}/postgres"

    def create(self) -> None:
        if self.user:
            shutil.chown(self.folder, self.user)
        self._run("initdb", "-D", str(self.data), "-U", "msaccel", "--auth=trust", "-E", "UTF8", "--no-locale").wait()
        assert (self.data / "PG_VERSION").exists(), (self.folder / "log").read_text()[-2000:]

    def start(self) -> None:
        where = ["-D", str(self.data), "-p", str(self.port), "-h", HOST, "-k", str(self.folder)]
        self.process = self._run("postgres", *where, "-c", "max_connections=200")
        wait_until(self.answers)

    def answers(self) -> bool:
        from psycopg2 import OperationalError, connect

        assert self.process and self.process.poll() is None, (self.folder / "log").read_text()[-2000:]
        try:
            connect(self.uri.replace("+psycopg2", "")).close()
        except OperationalError:  # it starts, or recovers
            return False
        return True

    def stop(self) -> None:
        """Immediate shutdown: no client is told, and the next start recovers from the log."""
        if self.process and self.process.poll() is None:
            self.process.send_signal(signal.SIGQUIT)
            self.process.wait(60)

    def _run(self, name: str, *arguments: str) -> subprocess.Popen[bytes]:
        with (self.folder / "log").open("ab") as log:
            return subprocess.Popen(
                [str(self.programs / name), *arguments],
                cwd=self.folder,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                user=self.user,
                start_new_session=True,
            )


def programs() -> Path:
    """Where PostgreSQL's programs are; the test is skipped where they are nowhere."""
    found = [Path(where).resolve().parent for where in [shutil.which("initdb")] if where]
    found += sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True)
    if (package := find_spec("pgserver")) and package.origin:
        found.append(Path(package.origin).parent / "pginstall" / "bin")
    for folder in found:
        if (folder / "initdb").exists():
            return folder
    pytest.skip(
        "PostgreSQL is missing: install it, or the package with `pip install -e '.[servers]' -c constraints.txt`"
    )
