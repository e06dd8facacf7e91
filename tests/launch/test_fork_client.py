"""Forked workers end, fail and are ended as started ones; the server is one that imports nothing and trains nothing."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from msaccel.launch import fork_client
from msaccel.launch.fork_client import ForkedProcess, fork
from tests.running import wait_until

# What the folder's name says: an exit code, a signal, or to wait for the launcher's end.
SERVER = """
import json, os, signal, socket, sys
from pathlib import Path
from msaccel.training import fork_server, worker
def run(folder):
    what = Path(folder).name
    Path(folder, "told.json").write_text(json.dumps([os.getcwd(), os.getpgid(0), os.environ["SAID"], os.getppid()]))
    if what == "wait":
        os.read(0, 1)
        os._exit(7)
    os.kill(os.getpid(), getattr(signal, what)) if what.startswith("SIG") else os._exit(int(what))
if os.environ["SAID"] == "broken":
    sys.exit(3)
fork_server.import_all = lambda: None
worker.run = run
fork_server.serve(socket.socket(fileno=int(sys.argv[1])))
"""
Told = tuple[str, int, str, int]  # working directory, process group, what the environment says, the server


@pytest.fixture(autouse=True)
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(fork_client, "COMMAND", [sys.executable, "-c", SERVER])
    monkeypatch.setattr(fork_client, "_server", None)
    yield
    if fork_client._server:
        fork_client._server.end()


def started(folder: Path, what: str, said: str = "hello") -> ForkedProcess:
    (folder / what).mkdir(exist_ok=True)
    return fork(folder / what, {**os.environ, "SAID": said}, {"MSACCEL_RANK": "3"})


def told(folder: Path, what: str) -> Told:
    file = folder / what / "told.json"
    wait_until(lambda: file.exists() and bool(file.read_text()))
    return json.loads(file.read_text())


@pytest.mark.parametrize(("what", "code"), [("0", 0), ("1", 1), ("SIGSEGV", -signal.SIGSEGV)])
def test_its_end_is_reported(tmp_path: Path, what: str, code: int) -> None:
    process = started(tmp_path, what)
    assert process.wait(60) == process.poll() == process.returncode == code
    process.send_signal(signal.SIGKILL)  # to nobody


def test_it_is_a_process_group_in_the_launchers_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    started(tmp_path, "0").wait(60)
    monkeypatch.chdir(tmp_path)  # Hydra can do so for each job
    process = started(tmp_path, "wait")
    assert told(tmp_path, "wait")[:3] == [str(tmp_path), process.pid, "hello"]
    assert process.poll() is None
    with pytest.raises(subprocess.TimeoutExpired):
        process.wait(0.01)
    process.send_signal(signal.SIGTERM)
    assert process.wait(60) == -signal.SIGTERM


def test_it_hears_when_its_launcher_is_gone(tmp_path: Path) -> None:
    process = started(tmp_path, "wait")
    process.stdin.close()
    assert process.wait(60) == 7


def test_one_server_forks_all_that_have_its_environment(tmp_path: Path) -> None:
    servers = []
    for what, said in [("0", "a"), ("1", "a"), ("2", "b")]:
        started(tmp_path, what, said).wait(60)
        servers.append(told(tmp_path, what)[3])
        assert told(tmp_path, what)[2] == said
    assert servers[0] == servers[1] != servers[2]
    assert not Path(f"/proc/{servers[0]}").exists()


def test_a_process_ends_with_its_server_and_the_next_one_has_another(tmp_path: Path) -> None:
    process = started(tmp_path, "wait")
    server = told(tmp_path, "wait")[3]
    os.kill(server, signal.SIGKILL)
    assert process.wait(60) == -signal.SIGKILL
    wait_until(lambda: not Path(f"/proc/{process.pid}").exists())
    assert started(tmp_path, "0").wait(60) == 0
    assert told(tmp_path, "0")[3] != server


def test_a_server_that_cannot_import_ends_the_job_with_its_exit_code(tmp_path: Path) -> None:
    assert started(tmp_path, "0", "broken").wait() == 3


def test_the_server_ends_with_its_launcher(tmp_path: Path) -> None:
    launcher = f"""
import os, time
from pathlib import Path
from msaccel.launch import fork_client
fork_client.COMMAND = {fork_client.COMMAND!r}
fork_client.fork(Path({str(tmp_path)!r}, "wait"), {{**os.environ, "SAID": "hello"}}, {{"MSACCEL_RANK": "0"}})
time.sleep(600)
"""
    (tmp_path / "wait").mkdir()
    process = subprocess.Popen([sys.executable, "-c", launcher])
    try:
        _, worker, _, server = told(tmp_path, "wait")
    finally:
        process.kill()
        process.wait()
    wait_until(lambda: not any(Path(f"/proc/{pid}").exists() for pid in (worker, server)))
