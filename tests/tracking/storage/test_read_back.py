"""What a proxy confirms in MLflow's place is found missing at the end of a run, and sent again or reported."""

import json
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from http.client import HTTPConnection
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from msaccel.errors import TrackingError
from msaccel.tracking.mlflow_run import Run
from tests.tracking.storage.servers import HOST, MlflowServer, job
from tests.tracking.storage.test_metric_queue import Store

JOB = (
    "model=mlp", "data=synthetic", "data.train_size=640", "data.test_size=100", "train.epochs=null",
    "train.max_updates=40", "tracking.every=2", "train.eval_every=10",
)  # fmt: skip
UPDATES = list(range(2, 41, 2))


class Lossy(Store):
    """Loses what is sent until so many batches have come."""

    def __init__(self, until: int) -> None:
        super().__init__()
        self.until = until

    def log_batch(self, *arguments: object, **content: object) -> None:
        before = {name: list(points) for name, points in self.history.items()}, dict(getattr(self, "tags", {}))
        super().log_batch(*arguments, **content)  # type: ignore[arg-type]
        if len(self.batches) <= self.until:
            self.history, self.tags = before


def test_what_was_lost_is_sent_again(capsys: pytest.CaptureFixture[str]) -> None:
    client = Lossy(until=2)
    with Run(client, "r") as run:  # type: ignore[arg-type]
        run.tag(kernels="onednn")
        for update in (1, 2, 3):
            run.metrics(update, {"train/loss": 0.5, "lr": 0.1})
            run.flush()
    assert client.status == "FINISHED" and client.tags == {"kernels": "onednn"}
    assert {name: sorted(p.step for p in found) for name, found in client.history.items()} == {
        "train/loss": [1, 2, 3], "lr": [1, 2, 3]
    }  # fmt: skip
    assert capsys.readouterr().err == "MLflow lacks 2 of the 6 points that it has confirmed; that is sent again.\n"


def test_what_stays_lost_is_an_error_and_waits_for_a_resume() -> None:
    client = Store()
    client.lost = {2}
    run = Run(client, "r")  # type: ignore[arg-type]
    for update in (1, 2, 3):
        run.metrics(update, {"train/loss": 0.5})
    with pytest.raises(TrackingError) as raised:
        run.end("FINISHED")
    assert str(raised.value) == (
        "MLflow lacks 1 of the 3 points that it has confirmed, also after a second try (does a proxy answer in its "
        "place?); once that is fixed, python run.py resume=r continues it."
    )
    assert [step for *_, step in run.unflushed()] == [2] and client.status == "RUNNING"


def test_an_end_that_is_only_confirmed_is_no_end(monkeypatch: pytest.MonkeyPatch) -> None:
    client = Store()
    monkeypatch.setattr(client, "set_terminated", lambda run_id, status: None)
    run = Run(client, "r", minutes=0.001)  # type: ignore[arg-type]
    with pytest.raises(TrackingError, match=r"the end of the run could not be saved in MLflow \(it was confirmed and"):
        run.end("FINISHED")


@dataclass
class Proxy:
    """Hands requests on to a server, and answers those that `loses` chooses itself, with 200 and `{}`."""

    server: MlflowServer
    loses: Callable[[str, bytes], bool]
    lost: int = 0
    port: int = 0
    _http: ThreadingHTTPServer = field(init=False)

    def __enter__(self) -> "Proxy":
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


def is_batch_of_metrics(path: str, body: bytes) -> bool:
    return path.endswith("/runs/log-batch") and bool(json.loads(body).get("metrics"))


@pytest.mark.slow
def test_a_proxy_that_loses_the_first_batch(server: MlflowServer) -> None:
    with Proxy(server, lambda path, body: is_batch_of_metrics(path, body) and proxy.lost < 1) as proxy:
        training = job(proxy, *JOB, "tracking.experiment=first")  # type: ignore[arg-type]
        _, said = training.communicate(timeout=1500)
        assert (training.returncode, proxy.lost) == (0, 1), said
    assert "points that it has confirmed; that is sent again." in said
    (run,) = [run for run in server.runs() if run.data.params["tracking.experiment"] == "first"]
    assert run.info.status == "FINISHED" and server.steps(run)["train/loss"] == UPDATES


@pytest.mark.slow
def test_a_proxy_that_loses_every_batch(server: MlflowServer) -> None:
    with Proxy(server, is_batch_of_metrics) as proxy:
        training = job(proxy, *JOB, "tracking.experiment=every")  # type: ignore[arg-type]
        _, said = training.communicate(timeout=1500)
        assert training.returncode == 1
        assert "points that it has confirmed, also after a second try" in said and "Traceback" not in said
        (run,) = [run for run in server.runs() if run.data.params["tracking.experiment"] == "every"]
        assert run.info.status == "FAILED"
        proxy.loses = lambda path, body: False
        resumed = job(proxy, f"resume={run.info.run_id}")  # type: ignore[arg-type]
        _, said = resumed.communicate(timeout=1500)
        assert resumed.returncode == 0, said
    run = server.client.get_run(run.info.run_id)
    assert run.info.status == "FINISHED" and server.steps(run)["train/loss"] == UPDATES
