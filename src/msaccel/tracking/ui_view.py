"""The view of an experiment that MLflow's UI opens from the project's links: does a method help?

MLflow's default view shows metrics in alphabetical order over updates, of which methods with larger batches make fewer.
MLflow reads another view from a tag of the experiment: JSON that names the view's state, which is itself compressed
JSON. The keys are those of MLflow 3.17.
"""

from __future__ import annotations

import base64
import json
import shlex
import time
import zlib
from typing import Any

from mlflow import MlflowClient
from mlflow.entities import Experiment

from msaccel.accel import methods

KEY = "msaccel"  # of the view, in links
TAG = f"mlflow.sharedViewState.{KEY}"

_ANSWER, _MEANS = "answer", "means"  # sections
_LINES = ("train/loss", "eval/accuracy")
_MEAN_LINES = ("eval/accuracy", "train/loss")
_BARS = ("final/accuracy", "throughput/samples_per_sec")
_FOLDED = (
    "train", "eval", "val", "final", "best", "throughput", "time", "memory", "cost", "comm", "grad", "loss_scale",
    "dimreduce", "Model metrics", "System metrics",
)  # fmt: skip
_COLUMNS = (
    "params.`accel`", "params.`optimizer.lr`", "params.`seed`", "metrics.`final/accuracy`",
    "metrics.`throughput/samples_per_sec`",
)  # fmt: skip


COLOUR, DESCRIPTION = "mlflow.runColor", "mlflow.note.content"  # tags that MLflow's pages show
PARENT = "mlflow.parentRunId"  # the tag by which they show a run below another
_GREY = "#8c8c8c"
COLOURS = (  # in the order of the methods; told apart by colour-blind readers
    "#117733", "#e69f00", "#0072b2", "#d55e00", "#009e73", "#cc79a7", "#661100", "#56b4e9", "#aa4499", "#b8860b",
    "#882255", "#332288",
)  # fmt: skip


def run_colour(label: str) -> str:
    """The colour of all runs of a method or combination, `accum` or `accum+clip`; grey for the baseline `none`."""
    if label == "none":
        return _GREY
    known = list(methods())
    return COLOURS[(known.index(label) if label in known else zlib.crc32(label.encode())) % len(COLOURS)]


def save_view(client: MlflowClient, experiment: Experiment) -> None:
    """Saves view and description with an experiment that has none yet, or those of an earlier version."""
    state = "deflate;" + base64.b64encode(zlib.compress(json.dumps(_state()).encode())).decode()
    if DESCRIPTION not in experiment.tags:
        answer = f"python -m msaccel compare --experiment {shlex.quote(experiment.name)}"
        text = f"Runs with and without a method; grey is the baseline. The answer with its intervals: `{answer}`"
        client.set_experiment_tag(experiment.experiment_id, DESCRIPTION, text)
    if state not in experiment.tags.get(TAG, ""):
        now = int(time.time() * 1000)
        view = {"name": KEY, "createdAt": now, "updatedAt": now, "state": state}
        client.set_experiment_tag(experiment.experiment_id, TAG, json.dumps(view))


def _state() -> dict[str, Any]:
    sections = [
        _section(_ANSWER, "Does it help?", folded=False),
        _section(_MEANS, "Means over seeds, 95 %", folded=False),
    ]
    charts = [*map(_line, _LINES), *map(_bar, _BARS), *map(_mean, _MEAN_LINES)]
    return {
        "searchFilter": "",
        # Sorted by start time, MLflow would fold a sweep's runs, and their curves, away below the sweep's own run.
        "orderByKey": "metrics.`final/accuracy`",
        "orderByAsc": False,
        "startTime": "ALL",
        "lifecycleFilter": "Active",
        "datasetsFilter": [],
        "modelVersionFilter": "All Runs",
        "selectedColumns": _COLUMNS,
        "columnOrder": [],
        "columnWidths": {},
        "runsHiddenMode": "SHOWALL",
        "compareRunCharts": charts,
        "compareRunSections": [*sections, *(_section(name, name, folded=True) for name in _FOLDED)],
        "viewMaximized": False,
        "runListHidden": False,
        "isAccordionReordered": True,
        "useGroupedValuesInCharts": True,
        "hideEmptyCharts": True,
        "groupBy": None,
        "groupsExpanded": {},
        "globalLineChartConfig": {"xAxisKey": "metric", "lineSmoothness": 0, "selectedXAxisMetricKey": "epoch"},
    }


def _section(uuid: str, name: str, folded: bool) -> dict[str, Any]:
    return {
        "uuid": uuid,
        "name": name,
        "display": not folded,
        "isReordered": not folded,
        "deleted": False,
        "columns": 2,
        "isGenerated": folded,  # filled by MLflow with the metrics of that name
    }


def _chart(metric: str, section: str) -> dict[str, Any]:
    return {
        "uuid": f"{section} {metric}",
        "runsCountToCompare": 20,
        "metricSectionId": section,
        "deleted": False,
        "isGenerated": False,
        "displayName": metric,
        "metricKey": metric,
    }


def _bar(metric: str) -> dict[str, Any]:
    return {"type": "BAR", "dataAccessKey": metric, **_chart(metric, _ANSWER)}


def _mean(metric: str) -> dict[str, Any]:
    """The curves of a method's run in a sweep: mean over its seeds, and the ends of its interval."""
    lines = [f"{metric}/{end}" for end in ("mean", "lo", "hi")]
    return {**_line(lines[0], _MEANS), "selectedMetricKeys": lines}


def _line(metric: str, section: str = _ANSWER) -> dict[str, Any]:
    """A curve over epochs: the samples a run has seen, whatever the size of its updates."""
    return {
        "type": "LINE",
        **_chart(metric, section),
        "lineSmoothness": 0,
        "xAxisScaleType": "linear",
        "scaleType": "linear",
        "range": {},
        "xAxisKey": "metric",
        "selectedXAxisMetricKey": "epoch",
        "yAxisKey": "metric",
        "yAxisExpressions": [],
        "ignoreOutliers": False,
        "useGlobalXaxisKey": False,
        "useGlobalLineSmoothing": True,
        "selectedMetricKeys": [metric],
    }
