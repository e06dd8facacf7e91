"""System metrics: MLflow's own, in the run of a job, beside which its metrics are what they are without them."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from msaccel.compare import runs
from msaccel.compare.groups import group
from msaccel.config.checks import refusals
from msaccel.config.compose import from_overrides
from msaccel.tracking.mlflow_run import Run
from msaccel.tracking.store import open_store
from msaccel.tracking.system_metrics import system_metrics
from tests.running import SMALL, Store

INTERVAL = "MLFLOW_SYSTEM_METRICS_SAMPLING_INTERVAL"
CPU = "system/cpu_utilization_percentage"


def test_they_end_with_the_run_and_are_none_of_its_lost_points(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv(INTERVAL, "0.05")
    client = open_store(f"sqlite:///{tmp_path}/mlflow.db")
    created = client.create_run(client.create_experiment("lenet-mnist")).info.run_id
    with Run(client, created) as run:
        for first in (0, 1):  # a job that goes on begins where it ended
            with system_metrics(run):
                until = time.monotonic() + 100
                while len(client.get_metric_history(created, CPU)) <= first and time.monotonic() < until:
                    time.sleep(0.05)
            run.metrics(first, {"train/loss": 0.5})
    steps = [point.step for point in client.get_metric_history(created, CPU)]
    assert len(steps) >= 2 and steps == list(range(len(steps)))
    found = client.get_run(created)
    assert found.info.status == "FINISHED" and {"train/loss", "system/system_memory_usage_percentage"} <= set(
        found.data.metrics
    )
    assert "lacks" not in capsys.readouterr().err


def test_without_psutil_they_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    wanted = from_overrides(["tracking.system_metrics=true"])
    assert refusals(wanted) == []
    monkeypatch.setattr("msaccel.config.checks.find_spec", lambda name: None)
    assert refusals(wanted) == [
        "tracking.system_metrics=true needs psutil; run pip install psutil first, or leave it out."
    ]
    assert refusals(from_overrides([])) == []


@pytest.mark.slow
def test_a_job_has_them_and_its_own_metrics_are_the_same(tmp_path: Path) -> None:
    store = Store(tmp_path)
    for wanted in ("false", "true"):
        job = (*SMALL, "model=mlp", "train.epochs=10", f"tracking.system_metrics={wanted}")
        ended = store.run(*job, **{INTERVAL: "0.05"})
        assert ended.returncode == 0, ended.stderr
    without, monitored = (store.history(run) for run in store.runs())
    assert monitored[CPU]
    assert without == {name: points for name, points in monitored.items() if not name.startswith("system/")}
    (found,) = group(runs.find(store.client))
    assert len(found.methods) == 1, "a comparison takes both for the same training"
