"""The view that the project saves with an experiment, and the colours of its runs."""

import base64
import json
import zlib
from pathlib import Path

from msaccel.accel import methods
from msaccel.tracking.store import open_store
from msaccel.tracking.ui_links import overview
from msaccel.tracking.ui_view import DESCRIPTION, TAG, run_colour, save_view


def test_a_view_is_saved_once_and_a_description_of_the_users_stays(tmp_path: Path) -> None:
    client = open_store(f"sqlite:///{tmp_path}/mlflow.db")
    experiment = client.create_experiment("lenet-mnist")
    save_view(client, client.get_experiment(experiment))
    saved = client.get_experiment(experiment).tags
    assert "--experiment lenet-mnist" in saved[DESCRIPTION]
    kind, _, packed = json.loads(saved[TAG])["state"].partition(";")
    state = json.loads(zlib.decompress(base64.b64decode(packed)))
    drawn = {chart["metricKey"]: chart.get("selectedXAxisMetricKey") for chart in state["compareRunCharts"]}
    assert kind == "deflate" and drawn["train/loss"] == drawn["eval/accuracy"] == "epoch"
    client.set_experiment_tag(experiment, DESCRIPTION, "mine")
    save_view(client, client.get_experiment(experiment))
    assert client.get_experiment(experiment).tags == {**saved, DESCRIPTION: "mine"}


def test_only_experiments_of_our_runs_are_given_the_view(tmp_path: Path) -> None:
    client = open_store(f"sqlite:///{tmp_path}/mlflow.db")
    ours, others = client.create_experiment("lenet-mnist"), client.create_experiment("somebody's")
    client.create_run(ours, tags={"accel": "none"})
    client.create_run(others)
    overview(client, "http://127.0.0.1:5000")
    assert TAG in client.get_experiment(ours).tags and client.get_experiment(others).tags == {}


def test_each_method_has_a_colour_of_its_own_and_the_baseline_none() -> None:
    colours = {label: run_colour(label) for label in ("none", *methods())}
    assert len(set(colours.values())) == len(colours)
    assert run_colour("accum+clip") == run_colour("accum+clip") != colours["none"]
