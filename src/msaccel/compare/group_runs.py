"""A run in MLflow for each group of seeds: the mean over them as curves, and what is concluded as its description.

MLflow's pages average only the last values of runs. This run has the curves `eval/accuracy/mean`, and in `/lo` and
`/hi` the 95 % interval of that mean. It is made once, when no further seed will follow.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence

import numpy as np
from mlflow import MlflowClient
from mlflow.entities import Metric, Param, Run
from mlflow.utils.validation import MAX_METRICS_PER_BATCH, MAX_PARAMS_TAGS_PER_BATCH
from numpy.typing import NDArray

from msaccel.compare.measures import FINAL, values
from msaccel.compare.method_runs import MethodRuns
from msaccel.compare.render import format
from msaccel.compare.statistics import half_width
from msaccel.errors import on_one_line
from msaccel.tracking.status import FINISHED, KIND, SEEDS
from msaccel.tracking.store import tag_equals
from msaccel.tracking.ui_view import COLOUR, DESCRIPTION, PARENT, run_colour

CURVES = ("train/loss", "eval/loss", "eval/accuracy", "val/loss", "val/accuracy")
LONGEST_NAME = 240  # characters; MLflow's databases take 250
_EPOCH = "epoch"  # the axis of the view's charts

Curve = dict[int, float]  # values by update


def group_name(label: str, seeds: int) -> str:
    """The name of a method's run: `clip: mean of 5 seeds`."""
    return on_one_line(f"{label}: mean of {seeds} seeds", LONGEST_NAME)


def finished_groups(client: MlflowClient, experiment: str, *tags: str) -> set[str]:
    """The names of an experiment's group runs. One that a kill left unfinished is deleted, to be made again.

    Args:
        tags: further conditions on them, as MLflow searches for them.
    """
    finished = set()
    for group in client.search_runs([experiment], " and ".join([tag_equals(KIND, SEEDS), *tags])):
        if group.info.status == FINISHED:
            finished.add(group.info.run_name)
            continue
        for run in client.search_runs([experiment], tag_equals(PARENT, group.info.run_id)):
            if above := group.data.tags.get(PARENT):
                client.set_tag(run.info.run_id, PARENT, above)
            else:
                client.delete_tag(run.info.run_id, PARENT)
        client.delete_run(group.info.run_id)
    return finished


def keep_group(
    client: MlflowClient,
    label: str,
    method: MethodRuns,
    own: Sequence[Run],
    said: Sequence[str],
    tags: Mapping[str, str],
) -> None:
    """Puts a run above those of a method.

    Args:
        label: begins its name.
        own: the method's runs that train, of one experiment.
        said: paragraphs of the description, after the method's mean.
        tags: further ones of the run; it lies below the run that their `PARENT` names.
    """
    finals = list(values(method, FINAL).values())
    mean = f"**final accuracy {format.average(finals, FINAL.number_format)}**"
    text = "\n\n".join([f"{mean}, mean over the {len(finals)} seeds that train, of {method.attempts}", *said])
    every = {KIND: SEEDS, COLOUR: run_colour(method.accel), DESCRIPTION: text, **tags}
    group = client.create_run(own[0].info.experiment_id, run_name=group_name(label, len(own)), tags=every)
    set_shared_params(client, group, own)
    points = list(_points(client, own))
    for first in range(0, len(points), MAX_METRICS_PER_BATCH):
        client.log_batch(group.info.run_id, metrics=points[first : first + MAX_METRICS_PER_BATCH])
    above = tags.get(PARENT)
    for run in own:
        if run.data.tags.get(PARENT, above) == above:  # otherwise somebody has moved it
            client.set_tag(run.info.run_id, PARENT, group.info.run_id)
    client.set_terminated(group.info.run_id, FINISHED)


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
