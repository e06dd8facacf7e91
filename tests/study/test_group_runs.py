"""The runs that hold the means of a study's arms, from runs that are planted."""

from pathlib import Path

import pytest
from mlflow import MlflowClient

from msaccel.config import compose
from msaccel.study import protocol, protocol_file
from msaccel.study.group_runs import keep_groups
from msaccel.study.runner import StudyRunner
from msaccel.tracking.status import KIND, SEEDS
from msaccel.tracking.ui_view import DESCRIPTION, PARENT
from tests.study.planted import STUDIES, plant, train


@pytest.fixture
def client(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> MlflowClient:
    """Of a store with two studies, whose experiments are still empty."""
    monkeypatch.setattr(protocol, "EXPERIMENTS", tmp_path / "experiments")
    compose.register()
    return plant(tmp_path)


def test_each_arm_that_was_judged_has_one_once(client: MlflowClient) -> None:
    train(client)
    found = {}
    for name in STUDIES:
        experiment = client.get_experiment_by_name(name).experiment_id
        of_training = len(client.search_runs([experiment]))
        for _ in range(2):
            keep_groups(StudyRunner(protocol_file.load(name), client, ""))
        groups = client.search_runs([experiment], f"tags.{KIND} = '{SEEDS}'")
        found |= {(name, run.info.run_name): run for run in groups}
        assert len(client.search_runs([experiment])) == of_training + len(groups)
    assert [name for _, name in sorted(found)] == [
        "accuracy, clipped: mean of 5 seeds",
        "accuracy, plain: mean of 5 seeds",
        "stability, clipped: mean of 6 seeds",
        "accuracy, 4 × 32: mean of 5 seeds",
        "accuracy, batch 128: mean of 5 seeds",
    ], "no plain run of the second part trains, and the fourth part measures speed"
    plain = found["clips", "accuracy, plain: mean of 5 seeds"]
    children = client.search_runs([plain.info.experiment_id], f"tags.`{PARENT}` = '{plain.info.run_id}'")
    losses = [run.data.metrics["train/loss"] for run in children]
    assert len(losses) == 5 and plain.data.metrics["train/loss/mean"] == pytest.approx(sum(losses) / 5)
    assert plain.data.params["optimizer.lr"] == "0.02" and "seed" not in plain.data.params
    assert "**Hypothesis:** clipped is as accurate as plain, within" in plain.data.tags[DESCRIPTION]


def test_an_arm_with_runs_of_another_store_has_none(client: MlflowClient) -> None:
    train(client, ["sums"])
    runner = StudyRunner(protocol_file.load("sums"), client, "")
    (part, _) = runner.study.parts.values()
    runner.published = [record for job, record in runner.runs.of_jobs(runner.jobs(part)).items() if job.seed == 0]
    keep_groups(runner)
    assert not client.search_runs([client.get_experiment_by_name("sums").experiment_id], f"tags.{KIND} = '{SEEDS}'")
