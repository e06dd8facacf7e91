"""MLflow's store: what it is, its experiments, and where one keeps its artifacts."""

import threading
from collections.abc import Callable
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from msaccel.config.compose import from_overrides
from msaccel.errors import TrackingError, UserError
from msaccel.launch import resume
from msaccel.launch.job_folder import JobFolder
from msaccel.tracking import store as stores
from msaccel.tracking.mlflow_run import Run
from msaccel.tracking.start import start
from msaccel.tracking.store import (
    check_experiment,
    experiments,
    local_path,
    must_keep_artifacts_in,
    open_experiment,
    open_store,
)
from tests.running import Store


def test_another_kind_of_file_is_refused_without_asking_mlflow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """MLflow would try for 100 seconds."""
    monkeypatch.setattr(stores, "connect", None)
    for content in (b"no database", b"no database" * 1000, b"SQLite format 3\0" + b"\1" * 4080):
        (tmp_path / "mlflow.db").write_bytes(content)
        with pytest.raises(UserError, match=r"mlflow\.db cannot be used \(file is not a database\); write another"):
            open_store(f"sqlite:///{tmp_path}/mlflow.db")
        assert (tmp_path / "mlflow.db").read_bytes() == content


def test_an_empty_file_becomes_a_store(tmp_path: Path) -> None:
    """Such as one of `mktemp`."""
    (tmp_path / "mlflow.db").touch()
    assert [found.name for found in open_store(f"sqlite:///{tmp_path}/mlflow.db").search_experiments()] == ["Default"]


def test_a_server_that_fails_after_its_first_answer_is_one_sentence(composed: Callable, tmp_path: Path) -> None:
    """As a proxy does whose server has gone; each command ended in a traceback of MLflow's."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.answer(200, b'{"experiments": []}')

        def do_GET(self) -> None:
            self.answer(502, b"<html>Bad Gateway</html>")

        def answer(self, status: int, body: bytes) -> None:
            self.rfile.read(int(self.headers.get("Content-Length") or 0))
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *ignored: object) -> None: ...

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        uri = f"http://127.0.0.1:{server.server_port}"
        client = open_store(uri)
        with pytest.raises(UserError, match=r"^the experiment lenet-mnist in http.* cannot be read .*502.*; try again"):
            check_experiment(client, "lenet-mnist")
        for which, what in (("latest", "the experiment lenet-mnist"), ("0" * 32, f"run {'0' * 32}")):
            typed = [f"resume={which}", f"tracking.uri={uri}"]
            with pytest.raises(UserError, match=rf"^{what} in http.* cannot be read .*502.*; try again"):
                resume.find(composed(*typed), typed, JobFolder(tmp_path))
        server.shutdown()


@pytest.mark.parametrize("name", ["plain", "a b", "a?b#c%20d", "ä"])
def test_an_artifact_location_names_its_folder(tmp_path: Path, name: str) -> None:
    assert local_path((tmp_path / name).as_uri()) == tmp_path / name
    assert local_path("s3://bucket/folder") is None


def test_another_place_for_artifacts_than_the_experiment_has_is_refused(tmp_path: Path) -> None:
    """As after a repository was moved: MLflow would go on writing into the old place."""
    client, old, new = open_store(f"sqlite:///{tmp_path}/mlflow.db"), tmp_path / "old files", tmp_path / "new"
    experiment = open_experiment(client, "lenet-mnist", str(old))
    must_keep_artifacts_in(str(old), experiment)
    inside = open_experiment(client, "mine/lenet", str(old))
    must_keep_artifacts_in(str(old), inside)
    with pytest.raises(UserError, match=f"write tracking.artifacts={old} or another"):
        must_keep_artifacts_in(str(new), inside)
    must_keep_artifacts_in(str(new), client.get_experiment(client.create_experiment("made in the UI")))
    with pytest.raises(UserError, match=f"write tracking.artifacts={old} or another tracking.experiment"):
        must_keep_artifacts_in(str(new), experiment)


def test_the_id_of_a_run_is_known_before_anything_else_can_fail(tmp_path: Path, monkeypatch) -> None:
    """Else the folder of a job whose run lacks its parameters would go, and with it the way to resume it."""
    told: list[str] = []

    def refuses(run: Run, params: object) -> None:
        raise OSError("the server has gone")

    monkeypatch.setattr(Run, "parameters", refuses)
    config = from_overrides([f"tracking.uri=sqlite:///{tmp_path}/mlflow.db", f"tracking.artifacts={tmp_path}/files"])
    with pytest.raises(TrackingError, match="the server has gone"):
        start(config, "none-cpu-s0", "", tmp_path, created=told.append)
    (experiment,) = open_store(config.tracking.uri).search_experiments(filter_string="name LIKE 'lenet%'")
    (run,) = open_store(config.tracking.uri).search_runs([experiment.experiment_id])
    assert told == [run.info.run_id]


def test_experiments_of_every_page_are_found(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    client = store.client
    for name in ("first", "second", "third"):
        client.create_experiment(name)
    monkeypatch.setattr(client, "search_experiments", partial(client.search_experiments, max_results=2))
    assert set(experiments(client, None).values()) == {"Default", "first", "second", "third"}
    assert list(experiments(client, "first").values()) == ["first"]
