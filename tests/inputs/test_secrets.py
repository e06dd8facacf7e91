"""Secrets of the environment and of the tracking address, planted, and looked for in all that jobs leave behind."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from unittest import mock

import pytest
from mlflow import MlflowClient

from msaccel.files import ROOT
from msaccel.tracking import ui
from tests.running import python
from tests.tracking.ui.conftest import free_port

SECRETS = {
    "MLFLOW_TRACKING_TOKEN": "planted-token-of-mlflow",
    "AWS_SECRET_ACCESS_KEY": "planted-key-of-a-cloud",
    "AWS_SESSION_TOKEN": "planted-session-of-a-cloud",
    "GITHUB_TOKEN": "planted-token-of-github",
    "HF_TOKEN": "planted-token-of-a-hub",
    "SOME_API_KEY": "planted-key-of-something",
    "PIP_INDEX_URL": "https://name:planted-password-of-an-index@packages.example/simple",
    "HTTP_PROXY_PASSWORD": "planted-password-of-a-proxy",
}
PASSWORD = "planted-password-of-the-store"
TINY = (
    "data=synthetic", "data.train_size=64", "data.test_size=32", "model=mlp", "train.epochs=1", "kernels.use=mindspore",
)  # fmt: skip


@dataclass(frozen=True)
class Planted:
    """Jobs that had secrets within reach: what they printed, and the folder in which all of their files are."""

    folder: Path
    server: str
    ended: list[subprocess.CompletedProcess[str]]


def run(folder: Path, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, *arguments]
    env = {**os.environ, **SECRETS, **environment}
    return subprocess.run(command, capture_output=True, text=True, timeout=500, cwd=folder, env=env)


@pytest.fixture(scope="module")
def planted(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Planted]:
    """A job that finishes, one that fails, and a comparison, against a server whose address has a password."""
    folder = tmp_path_factory.mktemp("planted")
    (folder / "server").mkdir()
    port = free_port()
    store = ["--backend-store-uri", f"sqlite:///{folder}/server/mlflow.db", "--artifacts-destination", "server/files"]
    command = [sys.executable, "-m", "mlflow", "server", "--host", "127.0.0.1", "--port", str(port), "--workers", "1"]
    with (folder / "server.log").open("wb") as log:
        env = {**os.environ, "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false"}
        server = subprocess.Popen(
            [*command, *store], cwd=folder, env=env, start_new_session=True, stdout=log, stderr=subprocess.STDOUT
        )
    try:
        with mock.patch.object(ui, "_SECONDS_TO_START", 600.0):
            assert ui._answers(server, port), (folder / "server.log").read_text()
        address = f"127.0.0.1:{port}"
        uri, places = (
            f"http://name:{PASSWORD}@{address}",
            [f"hydra.{way}.dir={folder}/{way}" for way in ("run", "sweep")],
        )
        job = [str(ROOT / "run.py"), *TINY, *places]
        forked = partial(python, folder=folder, **SECRETS)
        ended = [
            run(folder, *job, MLFLOW_TRACKING_URI=uri),
            forked(*job, "-m", "seed=1", "optimizer.lr=1e30", "tracking={uri: '${oc.env:STORE}'}", STORE=uri),
            forked("-m", "msaccel", "compare", "--tracking-uri", uri),
            forked(*job, f"tracking.uri='http://name:{PASSWORD}@127.0.0.1:1'", "tracking.patience_minutes=0.01"),
        ]
        yield Planted(folder, f"http://{address}", ended)
    finally:
        ui._end(server)


@pytest.mark.slow
@pytest.mark.timeout(1500)
def test_jobs_end_as_they_should(planted: Planted) -> None:
    codes = [one.returncode for one in planted.ended]
    assert codes == [0, 1, 0, 1], [one.stderr for one in planted.ended]
    client = MlflowClient(planted.server)
    runs = client.search_runs([found.experiment_id for found in client.search_experiments()])
    assert sorted(run.info.status for run in runs if "accel" in run.data.params) == ["FAILED", "FINISHED"]
    assert {run.data.params["tracking.uri"] for run in runs if "accel" in run.data.params} == {planted.server}


@pytest.mark.slow
@pytest.mark.timeout(1500)
@pytest.mark.parametrize("secret", [*SECRETS.values(), PASSWORD])
def test_no_secret_is_left_anywhere(planted: Planted, secret: str) -> None:
    word = secret.split("@")[0].rsplit(":", 1)[-1]
    assert "planted" in word
    for one in planted.ended:
        assert word not in one.stdout + one.stderr
    files = [path for path in planted.folder.rglob("*") if path.is_file()]
    assert {"mlflow.db", "config.yaml", "environment.txt", "overrides.txt", "multirun.yaml", "job.json"} <= {
        path.name for path in files
    }
    assert [str(path) for path in files if word.encode() in path.read_bytes()] == []
