"""The run of a sweep: above its jobs' runs, with the report and the ranking, and counted nowhere as training."""

from collections.abc import Callable
from pathlib import Path

import pytest

from msaccel.compare import report
from msaccel.compare.runs import record
from msaccel.sweeps import status
from msaccel.sweeps.parent_run import keep_report, ranking
from msaccel.tracking.status import KIND, SEEDS
from msaccel.tracking.ui_links import overview
from msaccel.tracking.ui_view import DESCRIPTION, PARENT
from tests.compare.conftest import Planted

OVERRIDES = ["accel=none,clip", "tracking.every=3", "seed=0,1"]


def kept(planted: Planted, ids: list[str], *, complete: bool = False, sweep_id: str = "one") -> str:
    found = [planted.client.get_run(run_id) for run_id in ids]
    answer = report.build([record(run) for run in found])
    return keep_report(planted.client, answer, found, sweep_id, OVERRIDES, planted.uri, complete=complete)


def test_a_sweep_and_its_resumption_have_one_run(planted: Planted) -> None:
    ids = [planted.run(0.9, tag_accel="none"), planted.run(0.95, accel="clip", tag_accel="clip")]
    page = kept(planted, ids)
    ids += [planted.run(0.99, 1, tag_accel="none"), planted.run(0.1, 1, accel="clip", status="FAILED")]
    assert kept(planted, ids) == page and Path(page).is_file()
    everything = planted.client.search_runs([planted.experiment])
    (parent,) = [run for run in everything if KIND in run.data.tags]
    children = {run.info.run_id: run.data.tags["mlflow.parentRunId"] for run in everything if run is not parent}
    assert children == dict.fromkeys(ids, parent.info.run_id)
    assert (parent.info.run_name, parent.info.status) == ("sweep accel=none,clip seed=0,1", "FINISHED")
    assert "| 1 | clip | 1 | 95.00% |\n| 2 | none | 2 | 94.50% ± 6.36% |" in parent.data.tags[DESCRIPTION]
    files = {file.path for file in planted.client.list_artifacts(parent.info.run_id)}
    assert files == {"report.html", "report.md", "report.json", "report.csv", "ranking.md"}
    assert len(planted.find()) == 4 and parent.info.run_id not in {run.run_id for run in planted.find(sweep_id="one")}
    assert parent.info.run_id not in {run.run_id for run in status.find(planted.client, None, 9)}
    assert overview(planted.client, "http://127.0.0.1:5000")[0].startswith("lenet-mnist, 4 runs")


def test_a_sweep_whose_folder_has_a_quote_in_its_name(planted: Planted) -> None:
    page = kept(planted, [planted.run(0.9)], sweep_id="it's `one`")
    assert kept(planted, [planted.run(0.8, 1)], sweep_id="it's `one`") == page


def test_a_description_of_the_users_stays(planted: Planted) -> None:
    ids = [planted.run(0.9)]
    kept(planted, ids)
    parent = planted.client.get_run(ids[0]).data.tags["mlflow.parentRunId"]
    planted.client.set_tag(parent, DESCRIPTION, "mine")
    kept(planted, ids)
    assert planted.client.get_run(parent).data.tags[DESCRIPTION] == "mine"


def test_a_complete_sweep_has_the_parameters_that_its_jobs_share(planted: Planted) -> None:
    ids = [planted.run(0.9)]
    kept(planted, ids)
    parent = planted.client.get_run(ids[0]).data.tags["mlflow.parentRunId"]
    assert not planted.client.get_run(parent).data.params  # the next job may differ in any of them
    ids.append(planted.run(0.95, 1, accel="clip", tag_accel="clip"))
    kept(planted, ids, complete=True)
    first, second = (planted.client.get_run(run_id).data.params for run_id in ids)
    shared = planted.client.get_run(parent).data.params
    assert shared == dict(first.items() & second.items()) and "model.name" in shared and "seed" not in shared


def test_a_sweep_that_was_killed_at_its_end_has_each_group_once(
    planted: Planted, monkeypatch: pytest.MonkeyPatch
) -> None:
    ids = [
        planted.run(0.9 + seed / 100, seed, accel=accel, tag_accel=accel) for accel in ("a", "b") for seed in range(3)
    ]
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(planted.client, "set_terminated", raises(KeyboardInterrupt))
        kept(planted, ids, complete=True)
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr("msaccel.sweeps.parent_run.set_shared_params", raises(KeyboardInterrupt))
        kept(planted, ids, complete=True)
    kept(planted, ids, complete=True)
    groups = planted.client.search_runs([planted.experiment], f"tags.{KIND} = '{SEEDS}'")
    assert sorted(run.info.run_name for run in groups) == ["a: mean of 3 seeds", "b: mean of 3 seeds"]
    above = [planted.client.get_run(run_id).data.tags[PARENT] for run_id in ids]
    assert {*above} == {run.info.run_id for run in groups} and above[:3] == above[:1] * 3


def test_groups_of_two_budgets_have_names_of_their_own(planted: Planted) -> None:
    ids = [planted.run(0.9 + seed / 100, seed, train__epochs=epochs) for epochs in ("1", "2") for seed in range(3)]
    kept(planted, ids, complete=True)
    groups = planted.client.search_runs([planted.experiment], f"tags.{KIND} = '{SEEDS}'")
    assert len({run.info.run_name for run in groups}) == len(groups) == 2


def raises(error: type[BaseException]) -> Callable[..., None]:
    def call(*ignored: object) -> None:
        raise error

    return call


def test_methods_without_an_accuracy_come_last(planted: Planted) -> None:
    planted.run(None, accel="clip")  # type: ignore[arg-type]
    planted.run(0.2)
    first, last = ranking(planted.report())[1:]
    assert (first[1:], last[1:]) == (["none", "1", "20.00%"], ["clip", "trained 0 of 1", "–"])
