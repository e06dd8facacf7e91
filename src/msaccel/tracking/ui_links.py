"""Links into MLflow's UI that lead to training runs; its own front page shows an experiment as GenAI traces."""

from __future__ import annotations

import json
from contextlib import suppress
from urllib.parse import quote

from mlflow import MlflowClient
from mlflow.exceptions import MlflowException

from msaccel.errors import counted, printable
from msaccel.tracking.credentials import is_server, without_password
from msaccel.tracking.status import FINISHED, KIND, SEEDS, SWEEP
from msaccel.tracking.store import search_runs
from msaccel.tracking.ui_view import KEY, save_view

DEFAULT_PORT = 5000
COMPARISONS = "comparisons"  # the experiment of reports, which are answers and no runs to compare
_MAX_RUNS = 50_000  # the most that MLflow lists in one call
_TRAINING = "workflowType=machine_learning"  # without it the menu is that of GenAI


def charts(server: str, experiment_id: str) -> str:
    """The charts of an experiment's runs, in the view that the project saves with it."""
    return f"{server}/#/experiments/{experiment_id}/runs?viewStateShareKey={KEY}&compareRunsMode=CHART&{_TRAINING}"


def run(server: str, experiment_id: str, run_id: str) -> str:
    """The page of one run."""
    return f"{server}/#/experiments/{quote(experiment_id, safe='')}/runs/{quote(run_id, safe='')}"


def comparison(server: str, experiment_ids: list[str], run_ids: list[str]) -> str:
    """The comparison page of some runs: parameters and last values side by side, without curves."""
    return f"{server}/#/compare-runs?runs={_quoted(run_ids)}&experiments={_quoted(experiment_ids)}&{_TRAINING}"


def curves(server: str, experiment_ids: list[str], run_ids: list[str], metric: str = "train/loss") -> str:
    """One metric of some runs over updates: the page behind a metric on the comparison page."""
    runs, experiments = _quoted(run_ids), _quoted(experiment_ids)
    # The page reads all of these, and draws over time unless told.
    what = f"metric={_quoted(metric)}&plot_metric_keys={_quoted([metric])}&x_axis=step&line_smoothness=1"
    return f"{server}/#/metric?runs={runs}&experiments={experiments}&{what}&{_TRAINING}"


def overview(client: MlflowClient, server: str) -> list[str]:
    """Lines for each experiment that has runs: its charts, and its last two finished runs compared."""
    lines = []
    for experiment in client.search_experiments():
        if experiment.name == COMPARISONS:
            continue
        found = search_runs(client, [experiment.experiment_id], max_results=_MAX_RUNS)
        runs = [run for run in found if run.data.tags.get(KIND) not in (SWEEP, SEEDS)]
        if runs:
            if any("accel" in run.data.tags for run in runs):  # the experiment may be older than the view
                with suppress(MlflowException):  # the server may be read-only
                    save_view(client, experiment)
            name, many = printable(experiment.name), counted(len(runs), "run")
            lines.append(f"{name}, {many}: {charts(server, experiment.experiment_id)}")
        finished = [run.info for run in runs if run.info.status == FINISHED]
        if len(finished) > 1:
            pair = finished[1::-1]  # MLflow lists the newest first
            names = " and ".join(printable(info.run_name or info.run_id) for info in pair)
            where = server, [experiment.experiment_id], [info.run_id for info in pair]
            lines.append(f"  {names}, their loss: {curves(*where)}")
            lines.append(f"  {names}, side by side: {comparison(*where)}")
    return lines


def server_of(tracking_uri: str, port: int = DEFAULT_PORT) -> str:
    """The server that shows the store: itself where it is one, else the one that `make ui` starts."""
    if is_server(tracking_uri):
        return without_password(tracking_uri).rstrip("/")
    return f"http://127.0.0.1:{port}"


def _quoted(value: object) -> str:
    return quote(json.dumps(value), safe="")
