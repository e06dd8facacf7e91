"""Links into MLflow's UI that land on training runs; its own front page shows an experiment as GenAI traces."""

from __future__ import annotations

import json
from urllib.parse import quote

DEFAULT_PORT = 5000


def charts(server: str, experiment_id: str) -> str:
    """The charts of an experiment's runs."""
    return f"{server}/#/experiments/{experiment_id}/runs?compareRunsMode=CHART&workflowType=machine_learning"


def comparison(server: str, experiment_ids: list[str], run_ids: list[str]) -> str:
    """The comparison page of some runs."""
    runs, experiments = (quote(json.dumps(ids)) for ids in (run_ids, experiment_ids))
    return f"{server}/#/compare-runs?runs={runs}&experiments={experiments}"


def server_of(tracking_uri: str) -> str:
    """The server that shows the store: itself where it is one, else the one that `make ui` starts."""
    return tracking_uri.rstrip("/") if tracking_uri.startswith("http") else f"http://127.0.0.1:{DEFAULT_PORT}"
