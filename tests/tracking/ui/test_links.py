"""Addresses are well-formed, and a password never stands in one."""

from __future__ import annotations

import json
from urllib.parse import parse_qs

import pytest

from msaccel.tracking import ui_links
from msaccel.tracking.credentials import scrubbed

SERVER = "http://127.0.0.1:5000"


def query(link: str) -> dict[str, str]:
    assert link.startswith(f"{SERVER}/#/")
    assert link.isascii() and not set(link) & set(' "[],')  # a terminal underlines it whole
    return {key: values[0] for key, values in parse_qs(link.partition("?")[2], strict_parsing=True).items()}


def test_charts() -> None:
    link = ui_links.charts(SERVER, "7")
    assert "/experiments/7/runs?" in link
    assert query(link) == {
        "viewStateShareKey": "msaccel",
        "compareRunsMode": "CHART",
        "workflowType": "machine_learning",
    }


def test_run() -> None:
    assert ui_links.run(SERVER, "7", "0a1b") == f"{SERVER}/#/experiments/7/runs/0a1b"
    assert ui_links.run(SERVER, '"><b>', "../x y") == f"{SERVER}/#/experiments/%22%3E%3Cb%3E/runs/..%2Fx%20y"


def test_a_message_keeps_the_link_to_the_charts_whole() -> None:
    link = ui_links.charts(SERVER, "7")
    assert scrubbed(link) == link and scrubbed("http://host/?key=secret") == "http://host/?key="


def test_comparison() -> None:
    asked = query(ui_links.comparison(SERVER, ["1", "2"], ["a", "b"]))
    assert json.loads(asked["runs"]) == ["a", "b"]
    assert json.loads(asked["experiments"]) == ["1", "2"]


def test_curves() -> None:
    asked = query(ui_links.curves(SERVER, ["1"], ["a", "b"], "eval/accuracy"))
    assert json.loads(asked["metric"]) == "eval/accuracy"
    assert json.loads(asked["plot_metric_keys"]) == ["eval/accuracy"]
    assert json.loads(asked["runs"]) == ["a", "b"]
    assert asked["x_axis"] == "step"


@pytest.mark.parametrize(
    ("tracking_uri", "server"),
    [
        ("sqlite:////somewhere/mlflow.db", "http://127.0.0.1:5050"),
        ("http://tracking.example/mlflow/", "http://tracking.example/mlflow"),
        ("https://name:secret@tracking.example:8443", "https://tracking.example:8443"),
        ("httpdata/mlruns", "http://127.0.0.1:5050"),
    ],
)
def test_server_of(tracking_uri: str, server: str) -> None:
    assert ui_links.server_of(tracking_uri, 5050) == server


def test_default_port() -> None:
    assert ui_links.server_of("sqlite:///mlflow.db") == SERVER
