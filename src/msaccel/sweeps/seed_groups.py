"""A run in MLflow for each method of a sweep: the mean over its seeds as curves, and the verdict as description.

MLflow's pages average only the last values of runs. This run has the curves `eval/accuracy/mean`, and in `/lo` and
`/hi` the 95 % interval of that mean. It is made once, when no job of the sweep is left.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence

import numpy as np
from mlflow import MlflowClient
from mlflow.entities import Metric, Param, Run
from mlflow.utils.validation import MAX_METRICS_PER_BATCH, MAX_PARAMS_TAGS_PER_BATCH
from numpy.typing import NDArray

from msaccel.compare.measures import ACCURACY, FINAL, SPEED, THROUGHPUT, values
from msaccel.compare.method_runs import MethodRuns
from msaccel.compare.render import format
from msaccel.compare.render.markdown import escape
from msaccel.compare.report import Report, Section
from msaccel.compare.statistics import MIN_RUNS, half_width
from msaccel.errors import on_one_line
from msaccel.tracking.status import FINISHED, KIND, SEEDS
from msaccel.tracking.ui_view import COLOUR, DESCRIPTION, PARENT, run_colour

CURVES = ("train/loss", "eval/loss", "eval/accuracy", "val/loss", "val/accuracy")
LONGEST_NAME = 240  # characters; MLflow's databases take 250
_EPOCH = "epoch"  # the axis of the view's charts

Curve = dict[int, float]  # values by update


def keep_groups(client: MlflowClient, report: Report, runs: Sequence[Run], parent: Run) -> None:
    """Puts a run between a sweep's run and the runs of each method that has at least three seeds which train.

    Args:
        runs: of the sweep, in the experiment of its run.
        parent: the sweep's run.
    """
    by_id = {run.info.run_id: run for run in runs}
    for section in report.sections:
        for method in section.found.methods:
            own = [by_id[record.run_id] for record in method.trained if record.run_id in by_id]
            if len(own) >= MIN_RUNS:
                _keep(client, section, method, own, parent)


def set_shared_params(client: MlflowClient, run: Run, others: Sequence[Run]) -> None:
    """Gives a run the parameters that all the others share: MLflow's pages then show those that differ."""
    shared = sorted(set.intersection(*(set(other.data.params.items()) for other in others)))
    for first in range(0, len(shared), MAX_PARAMS_TAGS_PER_BATCH):
        batch = shared[first : first + MAX_PARAMS_TAGS_PER_BATCH]
        client.log_batch(run.info.run_id, params=[Param(key, value) for key, value in batch])


def interval(seeds: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
    """Mean, and lower and upper end of its 95 % interval (Student's), of each column.

    Args:
        seeds: (seeds, points), of at least two seeds.
    """
    mean, half = seeds.mean(axis=0), half_width(seeds)
    return mean, mean - half, mean + half


def _keep(client: MlflowClient, section: Section, method: MethodRuns, own: Sequence[Run], parent: Run) -> None:
    tags = {
        KIND: SEEDS,
        PARENT: parent.info.run_id,
        "sweep_id": parent.data.tags["sweep_id"],
        COLOUR: run_colour(method.accel),
        DESCRIPTION: "\n\n".join(_verdicts(section, method)),
    }
    name = on_one_line(f"{method.label}: mean of {len(own)} seeds", LONGEST_NAME)
    group = client.create_run(parent.info.experiment_id, run_name=name, tags=tags)
    set_shared_params(client, group, own)
    points = list(_points(client, own))
    for first in range(0, len(points), MAX_METRICS_PER_BATCH):
        client.log_batch(group.info.run_id, metrics=points[first : first + MAX_METRICS_PER_BATCH])
    for run in own:
        if run.data.tags.get(PARENT, parent.info.run_id) == parent.info.run_id:  # otherwise somebody has moved it
            client.set_tag(run.info.run_id, PARENT, group.info.run_id)
    client.set_terminated(group.info.run_id, FINISHED)


def _verdicts(section: Section, method: MethodRuns) -> Iterator[str]:
    finals = list(values(method, FINAL).values())
    mean = f"**final accuracy {format.average(finals, FINAL.number_format)}**"
    yield f"{mean}, mean over the {len(finals)} seeds that train, of {method.attempts}"
    for one in section.comparisons:
        if one.pair.method is method:
            yield f"Against {escape(one.pair.baseline.label)} ({escape(one.pair.name)}):"
            for question, measure in ((ACCURACY, FINAL), (SPEED, THROUGHPUT)):
                difference = format.estimate(one.estimates.get(measure.name))
                yield f"- {measure.heading}: {difference}, {format.verdict(one.verdicts[question])}"
            yield from (f"- {escape(flag.sentence)}" for flag in one.flags)


def _points(client: MlflowClient, runs: Sequence[Run]) -> Iterator[Metric]:
    """The points of the group's curves, at the updates that all runs have."""
    now = int(time.time() * 1000)
    for key in (*CURVES, _EPOCH):
        curves = [_curve(client, run, key) for run in runs if key in run.data.metrics]
        if len(curves) < len(runs):
            continue
        steps = sorted(set.intersection(*(set(curve) for curve in curves)))
        seeds = np.array([[curve[step] for step in steps] for curve in curves])
        if key == _EPOCH:
            lines = {key: seeds[0]}
        else:
            lines = {f"{key}/{end}": line for end, line in zip(("mean", "lo", "hi"), interval(seeds), strict=True)}
        for name, line in lines.items():
            yield from (Metric(name, float(value), now, step) for step, value in zip(steps, line, strict=True))


def _curve(client: MlflowClient, run: Run, key: str) -> Curve:
    return {point.step: point.value for point in client.get_metric_history(run.info.run_id, key)}
