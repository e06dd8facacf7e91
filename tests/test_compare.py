"""Runs planted in MLflow come out grouped by settings, each seed once, and as tables that say what limits them."""

from pathlib import Path

import pytest
from mlflow import MlflowClient

from msaccel.compare import card, collect, summary
from msaccel.errors import UserError
from msaccel.tracking.store import open_store


@pytest.fixture
def client(tmp_path: Path) -> MlflowClient:
    found = open_store(f"sqlite:///{tmp_path}/mlflow.db")
    found.create_experiment("lenet-mnist", artifact_location=(tmp_path / "artifacts").as_uri())
    return found


def plant(client: MlflowClient, accuracy: float, seed: int = 0, status: str = "FINISHED", **params: str) -> str:
    experiment = client.get_experiment_by_name("lenet-mnist").experiment_id
    tags = {"git_commit": "a" * 40, "selected_on": "test", "sweep_id": params.pop("sweep_id", "one"), "seed": str(seed)}
    run = client.create_run(experiment, tags=tags).info.run_id
    dotted = {key.replace("__", "."): value for key, value in params.items()}
    for key, value in {"accel": "none", "optimizer.lr": "0.01", "tracking.every": "3", **dotted}.items():
        client.log_param(run, key, value)
    client.log_param(run, "seed", seed)
    client.log_metric(run, "final/accuracy", accuracy)
    client.log_text(run, "# a machine, 2 processors\nmindspore==2.10.0\nnumpy==1.26.4\n", "environment.txt")
    client.set_terminated(run, status)
    return run


def found(client: MlflowClient, **filters: str) -> list[collect.Group]:
    return collect.group(collect.find(client, filters.get("experiment"), filters.get("sweep_id")))


def test_groups_differ_by_settings_and_the_baseline_comes_first(client: MlflowClient) -> None:
    for seed in range(3):
        plant(client, 0.9 + seed / 100, seed, accel="accum", accel__accum__steps="4")
        plant(client, 0.8, seed)
        plant(client, 0.7, seed, optimizer__lr="0.1", tracking__every="9")
    groups = found(client)
    assert [group.settings for group in groups] == [
        {"accel": "none", "optimizer.lr": "0.01"},
        {"accel": "none", "optimizer.lr": "0.1"},
        {"accel": "accum", "optimizer.lr": "0.01"},
    ]
    assert [len(group.runs) for group in groups] == [3, 3, 3]
    assert groups[2].metric("final/accuracy") == pytest.approx([0.90, 0.91, 0.92])


def test_a_repeated_seed_counts_once_and_the_latest_run_stands(client: MlflowClient) -> None:
    for accuracy in (0.1, 0.2, 0.3):
        plant(client, accuracy)
    (group,) = found(client)
    assert group.metric("final/accuracy") == [0.3] and group.repeats == 2
    assert "2 further runs repeat a seed" in "\n".join(summary.remarks([group]))


def test_only_finished_runs_are_compared(client: MlflowClient) -> None:
    for status in ("FAILED", "KILLED"):
        plant(client, 0.5, status=status)
    assert found(client) == []


def test_runs_are_found_by_experiment_and_sweep(client: MlflowClient) -> None:
    plant(client, 0.1, sweep_id="one")
    plant(client, 0.2, 1, sweep_id="two")
    assert [len(group.runs) for group in found(client, sweep_id="two")] == [1]
    assert [len(group.runs) for group in found(client, experiment="lenet-mnist")] == [2]
    assert found(client, experiment="other") == []


@pytest.mark.parametrize(("seeds", "warned"), [(1, True), (2, True), (3, False)])
def test_too_few_seeds_are_said(client: MlflowClient, seeds: int, warned: bool) -> None:
    for seed in range(seeds):
        plant(client, 0.5, seed)
    assert ("too small" in "\n".join(summary.remarks(found(client)))) == warned


def test_the_spread_is_the_sample_standard_deviation() -> None:
    assert summary.spread([0.90, 0.92, 0.94], "{:.2%}") == "92.00% ± 2.00%"
    assert summary.spread([0.5], "{:.1f}") == "0.5" and summary.spread([], "{:.1f}") == "–"
    assert summary.lowest([0.9, 0.1], "{:.0%}") == "10%"


def test_a_card_keeps_its_text_and_gets_its_table(client: MlflowClient, tmp_path: Path) -> None:
    for seed in range(3):
        plant(client, 0.98, seed)
    path = tmp_path / "README.md"
    path.write_text(f"before\n{card.BEGIN}\nold\n{card.END}\nafter\n")
    groups = found(client)
    for _ in range(2):
        card.write_into(path, f"{card.markdown(groups)}\n\n{card.provenance(client, groups)}")
    text = path.read_text()
    assert text.startswith("before\n") and text.endswith("\nafter\n") and "old" not in text
    assert text.count("| none | 3 | 98.00% ± 0.00% | 98.00% |") == 1
    assert "3 runs" in text and "aaaaaaaaaaaa; a machine, 2 processors; mindspore==2.10.0, numpy==1.26.4." in text


def test_a_card_without_markers_is_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="has no lines"):
        card.write_into(tmp_path / "missing.md", "table")
