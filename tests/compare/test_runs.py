"""Runs are found by few calls, filtered, and grouped so that a group differs by its seeds alone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from mlflow.entities import ViewType

from msaccel.compare import groups, runs
from msaccel.compare.render import write
from msaccel.errors import UserError
from tests.compare.conftest import Planted


def test_methods_differ_by_settings_and_the_baseline_comes_first(planted: Planted) -> None:
    for seed in range(3):
        planted.run(0.9 + seed / 100, seed, accel="accum", accel__accum__steps="4")
        planted.run(0.8, seed)
        planted.run(0.7, seed, optimizer__lr="0.1", tracking__every="9", data__cache="elsewhere")
    (found,) = groups.group(planted.find())
    assert [method.settings for method in found.methods] == [
        {"accel": "none", "optimizer.lr": "0.01"},
        {"accel": "none", "optimizer.lr": "0.1"},
        {"accel": "accum", "optimizer.lr": "0.01"},
    ]
    assert [len(method.runs) for method in found.methods] == [3, 3, 3]
    assert found.title == "lenet, mnist, CPU 1 × 1, fp32, 3 epochs"


def test_a_budget_that_all_methods_share_is_in_the_title(planted: Planted) -> None:
    planted.run()
    planted.run(accel="clip")
    (found,) = groups.group(planted.find(), across_budgets=True)
    assert found.title == "lenet, mnist, CPU 1 × 1, fp32, 3 epochs"
    planted.run(accel="sam", train__epochs="6", metric_epoch=6.0)
    (found,) = groups.group(planted.find(), across_budgets=True)
    assert found.title == "lenet, mnist, CPU 1 × 1, fp32" and len(found.methods) == 3


def test_runs_from_before_a_key_existed_had_its_default(planted: Planted) -> None:
    for seed in range(2):
        planted.run(seed=seed, data__name="cifar10", model__name="resnet50")
        planted.run(seed=seed, data__name="cifar10", model__name="resnet50", accel="clip", data__flip="random",
                    data__padding="4", data__pad_mode="zeros", train__tta="none")  # fmt: skip
    planted.run(data__name="cifar10", model__name="resnet50", data__padding="2")
    planted.run(data__name="cifar10", model__name="resnet50", train__tta="flip")
    sets = groups.group(planted.find())
    assert sorted(len(found.methods) for found in sets) == [1, 1, 2], "other augmentation or evaluation is not compared"


def test_runs_from_before_a_key_of_a_method_existed_had_its_default(planted: Planted) -> None:
    planted.run(seed=0, accel="accum", accel__accum__steps="4")
    planted.run(seed=1, accel="accum", accel__accum__steps="4", accel__accum__grow_at="null", accel__accum__growth="5")
    planted.run(seed=2, accel="accum", accel__accum__steps="4", accel__accum__grow_at="[0.5]")
    (found,) = groups.group(planted.find())
    assert sorted(len(method.runs) for method in found.methods) == [1, 2]


def test_a_repeated_seed_counts_once_and_the_latest_run_stands(planted: Planted) -> None:
    for accuracy in (0.1, 0.2, 0.3):
        planted.run(accuracy)
    section = planted.section()
    (method,) = section.found.methods
    assert [run.metrics["final/accuracy"] for run in method.runs] == [0.3] and method.repeats == 2
    assert "2 further runs repeat the results of others" in "\n".join(section.notes)


def test_runs_are_found_by_experiment_sweep_and_tag(planted: Planted) -> None:
    planted.run(seed=0)
    planted.run(seed=1, tag_sweep_id="two")
    assert [run.seed for run in planted.find(sweep_id="two")] == [1]
    assert [run.seed for run in planted.find(tags=["seed=0", "git_commit=" + "a" * 40])] == [0]
    assert len(planted.find(experiment="lenet-mnist")) == 2
    assert planted.find(experiment="other") == []


@pytest.mark.parametrize("tag", ["model", "=x", "model='lenet'", "a`b=1"])
def test_a_tag_that_is_none_is_one_sentence(planted: Planted, tag: str) -> None:
    with pytest.raises(UserError, match="write key=value without quotes"):
        planted.find(tags=[tag])


@pytest.mark.parametrize("name", ["it's", 'a"b', "a`b", "a;b\\", "' or '1' = '1"])
def test_a_sweep_is_found_by_any_name_of_a_folder(planted: Planted, name: str) -> None:
    planted.run(seed=0)
    planted.run(seed=1, tag_sweep_id=name)
    assert [run.seed for run in planted.find(sweep_id=name)] == [1]


def test_a_sweep_that_mlflow_cannot_search_for(planted: Planted) -> None:
    with pytest.raises(UserError, match=r"the tag sweep_id=a'b\"c has both kinds of quotes, .* or by --experiment\.$"):
        planted.find(sweep_id="a'b\"c")


def test_two_sets_that_read_alike_are_told_apart(planted: Planted) -> None:
    planted.run()
    planted.run(model__init="normal(0.01)")
    titles = [section.title for section in planted.report().sections]
    assert [title.partition("epochs")[2] for title in titles] == [
        ", model.init=default",
        ", model.init=normal(0.01)",
    ]


@pytest.mark.parametrize(
    ("given", "budget"),
    [
        ({}, "3 epochs"),
        ({"train__max_updates": "100", "metric_epoch": 0.0533}, "0.0533 epochs"),
        ({"train__max_updates": "100", "metric_epoch": 3.0}, "3 epochs"),
        ({"train__max_updates": "100", "train__epochs": "null", "metric_epoch": None}, "3200 samples"),
        (
            {"train__max_updates": "50", "train__stop_at_target": "True", "accel__accum__steps": "4"},
            "6400 samples",
        ),
    ],
)
def test_the_budget_is_one_of_samples(planted: Planted, given: dict[str, Any], budget: str) -> None:
    planted.run(**given)
    assert groups.budget(planted.find()[0]) == budget


def test_synthetic_pictures_of_other_seeds_are_the_same_data(planted: Planted) -> None:
    for seed in range(3):
        planted.run(seed=seed, data__name="synthetic", digest=f"of seed {seed}")
    assert len(planted.section().found.methods[0].runs) == 3


class Counted:
    """A client that counts the calls made to it."""

    def __init__(self, client: Any) -> None:
        self._client, self.calls = client, 0

    def __getattr__(self, name: str) -> Any:
        self.calls += 1
        return getattr(self._client, name)


@pytest.mark.slow
def test_the_number_of_calls_grows_by_pages_not_runs(planted: Planted, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runs, "_PAGE", 10)
    for seed in range(35):
        planted.run(seed=seed, metric_time__to_target_s=9.0)
    client = Counted(planted.client)
    found = runs.find(client)  # type: ignore[arg-type]
    assert {run.seed for run in found} == set(range(35)) and client.calls == 1 + 4
    assert {run.target_update for run in found} == {100}


def test_a_stored_report_is_an_answer_and_no_run_to_compare(planted: Planted, tmp_path: Path) -> None:
    planted.run()
    before = planted.find()
    (tmp_path / "report").mkdir()
    (tmp_path / "report" / "mine.txt").write_text("not of the report")
    write.write(planted.client, planted.report(), tmp_path / "report")
    page = write.store(planted.client, planted.report(), tmp_path / "report", planted.uri, "all runs")
    assert page.endswith("report.html") and "artifacts/comparisons" in page
    assert [run.run_id for run in planted.find()] == [run.run_id for run in before]
    experiment = planted.client.get_experiment_by_name("comparisons").experiment_id
    (run,) = planted.client.search_runs([experiment], run_view_type=ViewType.ALL)
    assert run.data.tags["kind"] == "comparison" and run.info.status == "FINISHED"
    files = {file.path for file in planted.client.list_artifacts(run.info.run_id)}
    assert files == {"report.html", "report.md", "report.json", "report.csv"}


def test_of_a_server_the_place_of_the_page_is_a_link_to_its_run(planted: Planted, tmp_path: Path, monkeypatch) -> None:
    planted.runs([0.9, 0.8])
    monkeypatch.setattr(type(planted.client), "log_artifact", lambda *_: None)
    made = planted.client.create_experiment("comparisons", artifact_location="s3://bucket/comparisons")
    place = write.store(planted.client, planted.report(), tmp_path, "http://127.0.0.1:5000", "ours")
    (run,) = planted.client.search_runs([made])
    assert place == f"http://127.0.0.1:5000/#/experiments/{made}/runs/{run.info.run_id}/artifacts"
