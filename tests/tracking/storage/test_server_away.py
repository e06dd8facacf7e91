"""MLflow's server goes away while jobs train, or a proxy loses what it confirms: every point is there, once."""

import json
import time

import pytest

from tests.running import wait_until
from tests.tracking.storage.servers import MlflowServer, Proxy, job

pytestmark = pytest.mark.slow

UPDATES, EVERY = 600, 2
JOB = (
    "model=mlp", "data=synthetic", "data.train_size=640", "data.test_size=100", "train.epochs=null",
    f"train.max_updates={UPDATES}", f"tracking.every={EVERY}", "train.eval_every=10",
)  # fmt: skip
# 20 updates an epoch, and an evaluation every ten epochs.
POINTS = {name: list(range(EVERY, UPDATES + 1, EVERY)) for name in ("train/loss", "lr", "epoch", "time/train_s")}
EVALUATIONS = {name: [200, 400, 600] for name in ("eval/loss", "eval/accuracy", "memory/peak_mb")}
END = {name: [UPDATES] for name in ("final/accuracy", "final/loss", "best/accuracy")}
ARTIFACTS = {"config.yaml", "overrides.txt", "environment.txt", "job.log", "curves.png", "checkpoints"}
SHORT = (*JOB, "train.max_updates=40")
OF_SHORT = list(range(EVERY, 41, EVERY))


def away(server: MlflowServer, name: str, *overrides: str, seconds: float) -> tuple[int, str, str]:
    """Trains a job whose server goes when the run has begun, for so long or, if 0, till the job's end.

    Returns:
        The job's exit code, what it said to stderr, its run.
    """
    training = job(server, *JOB, f"tracking.experiment={name}", *overrides)
    try:
        wait_until(lambda: training.poll() is not None or begun(server, name))
        (run_id,) = begun(server, name)
        time.sleep(0.5)  # the server lists the last file before the job has its answer
        server.stop()
        if seconds:
            time.sleep(seconds)
            server.start()
        _, said = training.communicate(timeout=1500)
        if not seconds:
            server.start()
    finally:
        training.kill()
        training.wait()
    return training.returncode, said, run_id


def begun(server: MlflowServer, name: str) -> list[str]:
    """The runs of an experiment that wait for nothing but metrics."""
    runs = [run.info.run_id for run in server.runs() if run.data.params.get("tracking.experiment") == name]
    return [run for run in runs if "environment.txt" in {file.path for file in server.client.list_artifacts(run)}]


def must_be_complete(server: MlflowServer, run_id: str) -> None:
    run = server.client.get_run(run_id)
    assert run.info.status == "FINISHED"
    found = server.steps(run)
    for name, steps in (POINTS | EVALUATIONS | END).items():
        assert found[name] == steps, name
    assert {file.path for file in server.client.list_artifacts(run_id)} >= ARTIFACTS


def is_batch_of_metrics(path: str, body: bytes) -> bool:
    return path.endswith("/runs/log-batch") and bool(json.loads(body).get("metrics"))


def test_a_proxy_that_loses_the_first_batch(server: MlflowServer) -> None:
    with Proxy(server, lambda path, body: is_batch_of_metrics(path, body) and proxy.lost < 1) as proxy:
        training = job(proxy, *SHORT, "tracking.experiment=first")
        _, said = training.communicate(timeout=1500)
        assert (training.returncode, proxy.lost) == (0, 1), said
    assert "points that it has confirmed; that is sent again." in said
    (run,) = [run for run in server.runs() if run.data.params["tracking.experiment"] == "first"]
    assert run.info.status == "FINISHED" and server.steps(run)["train/loss"] == OF_SHORT


def test_a_proxy_that_loses_every_batch(server: MlflowServer) -> None:
    with Proxy(server, is_batch_of_metrics) as proxy:
        training = job(proxy, *SHORT, "tracking.experiment=every")
        _, said = training.communicate(timeout=1500)
        assert training.returncode == 1
        assert "points that it has confirmed, also after a second try" in said and "Traceback" not in said
        (run,) = [run for run in server.runs() if run.data.params["tracking.experiment"] == "every"]
        assert run.info.status == "FAILED"
        proxy.loses = lambda path, body: False
        resumed = job(proxy, f"resume={run.info.run_id}")
        _, said = resumed.communicate(timeout=1500)
        assert resumed.returncode == 0, said
    run = server.client.get_run(run.info.run_id)
    assert run.info.status == "FINISHED" and server.steps(run)["train/loss"] == OF_SHORT


def test_a_server_that_comes_back_has_every_point(server: MlflowServer) -> None:
    code, said, run_id = away(server, "back", seconds=3)
    assert code == 0, said
    assert "MLflow does not answer (Connection refused)" in said and "Traceback" not in said
    must_be_complete(server, run_id)


def test_a_job_whose_server_stays_away_ends_and_can_be_resumed(server: MlflowServer) -> None:
    code, said, run_id = away(server, "gone", "tracking.patience_minutes=0.05", seconds=0)
    assert code == 1
    assert "Traceback" not in said
    assert f" s0: MLflow was not told that run {run_id} is FAILED (Connection refused)." in said
    assert said.splitlines()[-1].startswith("baseline ")
    words = f"tracking.uri={server.uri} resume={run_id}"
    assert said.endswith(f"; once that is fixed, python run.py {words} continues it.\n")
    resumed = job(server, f"resume={run_id}")
    printed, said = resumed.communicate(timeout=1500)
    assert resumed.returncode == 0, said
    assert "goes on after update" in printed, printed
    must_be_complete(server, run_id)


@pytest.mark.soak
def test_a_minute(server: MlflowServer) -> None:
    code, said, run_id = away(server, "minute", seconds=60)
    assert code == 0, said
    must_be_complete(server, run_id)
