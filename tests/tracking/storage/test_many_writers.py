"""Jobs that log at once to one store lose no metric: each is counted."""

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from mlflow import MlflowClient

from msaccel.tracking.store import open_store
from tests.running import SMALL, Store, wait_until
from tests.tracking.storage.servers import MlflowServer, Postgres
from tests.tracking.storage.writers import GO, METRICS

ROOT = Path(__file__).parents[3]


def writing(uri: str, folder: Path, writers: int, updates: int) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "tests.tracking.storage.writers", uri, str(folder), str(writers), str(updates)]
    return subprocess.Popen(command, cwd=ROOT, stderr=subprocess.PIPE, text=True)


def must_be_complete(client: MlflowClient, writers: int, updates: int) -> None:
    """One run of each writer, with every point once and its value."""
    runs = client.search_runs([experiment.experiment_id for experiment in client.search_experiments()])
    named = {run.info.run_name: run for run in runs}
    assert sorted(named) == sorted(f"writer-{number}" for number in range(writers)) and len(runs) == writers
    for number in range(writers):
        run = named[f"writer-{number}"]
        assert (run.info.status, run.data.tags["selected_on"]) == ("FINISHED", "test")
        for name in METRICS:
            history = client.get_metric_history(run.info.run_id, name)
            found = sorted((point.step, point.value) for point in history)
            assert found == [(update, number + update / 1000) for update in range(1, updates + 1)], name


@pytest.mark.soak
def test_eight_on_sqlite(tmp_path: Path) -> None:
    uri = f"sqlite:///{tmp_path}/mlflow.db"
    (tmp_path / GO).touch()
    process = writing(uri, tmp_path, 8, 200)
    _, said = process.communicate(timeout=1500)
    assert process.returncode == 0, said
    must_be_complete(open_store(uri), 8, 200)


@pytest.mark.soak
def test_eight_jobs_on_sqlite(store: Store) -> None:
    """Real ones, beside each other."""
    jobs = [subprocess.Popen(store.command(*SMALL, f"seed={seed}", "tracking.every=1")) for seed in range(8)]
    assert [job.wait(1000) for job in jobs] == [0] * 8
    runs = store.runs()
    assert len(runs) == 8
    for run in runs:
        history = store.history(run, times=True)
        for name in ("train/loss", "train/accuracy", "lr", "epoch", "grad/norm", "time/train_s"):
            assert [update for update, _ in sorted(history[name])] == list(range(1, 23)), name


@pytest.fixture
def postgres() -> Iterator[Postgres]:
    pytest.importorskip("psycopg2", reason="psycopg2 is missing: `pip install -e '.[servers]' -c constraints.txt`")
    database = Postgres()
    try:
        database.create()
        database.start()
        yield database
    finally:
        database.stop()
        shutil.rmtree(database.folder)


@pytest.fixture
def served(postgres: Postgres, tmp_path: Path) -> Iterator[MlflowServer]:
    server = MlflowServer(tmp_path, postgres.uri)
    server.start()
    yield server
    server.stop()


def disturbed(disturb: Callable[[], None], server: MlflowServer, writers: int, updates: int) -> None:
    """Something goes while all write their second half, and comes back."""
    process = writing(server.uri, server.folder, writers, updates)
    try:
        wait_until(lambda: process.poll() is not None or len(list(server.folder.glob("half-*"))) == writers)
        (server.folder / GO).touch()
        disturb()
        _, said = process.communicate(timeout=1500)
    finally:
        process.kill()
    assert process.returncode == 0, said
    assert "MLflow does not answer" in said
    must_be_complete(server.client, writers, updates)


@pytest.mark.slow
@pytest.mark.parametrize(("writers", "updates"), [(2, 200), pytest.param(4, 400, marks=pytest.mark.soak)])
def test_several_on_a_server_that_is_killed(tmp_path: Path, writers: int, updates: int) -> None:
    server = MlflowServer(tmp_path)
    server.start()
    try:
        disturbed(lambda: (server.stop(), server.start()), server, writers, updates)  # type: ignore[func-returns-value]
    finally:
        server.stop()


@pytest.mark.soak
def test_sixteen_on_a_server_whose_database_restarts(served: MlflowServer, postgres: Postgres) -> None:
    def restart() -> None:
        postgres.stop()
        time.sleep(5)
        postgres.start()

    assert os.getuid() or postgres.user, "PostgreSQL refuses to run as root"
    disturbed(restart, served, 16, 300)


@pytest.mark.soak
def test_sixteen_on_a_server_with_postgres_that_is_killed(served: MlflowServer) -> None:
    disturbed(lambda: (served.stop(), served.start()), served, 16, 300)  # type: ignore[func-returns-value]
