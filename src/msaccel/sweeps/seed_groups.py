"""A run in MLflow for each method of a complete sweep, with its means over seeds and its verdicts."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from mlflow import MlflowClient
from mlflow.entities import Run

from msaccel.compare.group_runs import finished_groups, group_name, keep_group
from msaccel.compare.measures import FINAL, SPEED, THROUGHPUT
from msaccel.compare.method_runs import MethodRuns
from msaccel.compare.render import format
from msaccel.compare.render.markdown import escape
from msaccel.compare.report import Report, Section
from msaccel.compare.statistics import MIN_RUNS
from msaccel.tracking.store import tag_equals
from msaccel.tracking.ui_view import PARENT


def keep_groups(client: MlflowClient, report: Report, runs: Sequence[Run], parent: Run) -> None:
    """Puts a run between a sweep's run and the runs of each method that has at least three seeds which train.

    Args:
        runs: of the sweep, in the experiment of its run, and below it.
        parent: the sweep's run.
    """
    of_sweep = {run.info.run_id for run in runs}
    tags = {PARENT: parent.info.run_id, "sweep_id": parent.data.tags["sweep_id"]}
    kept = finished_groups(client, parent.info.experiment_id, tag_equals(PARENT, parent.info.run_id))
    for section in report.sections:
        for method in section.found.methods:
            label = method.label + (f" ({section.title})" if len(report.sections) > 1 else "")
            ids = [record.run_id for record in method.trained if record.run_id in of_sweep]
            if len(ids) >= MIN_RUNS and group_name(label, len(ids)) not in kept:
                own = [client.get_run(run_id) for run_id in ids]
                keep_group(client, label, method, own, [*_verdicts(section, method)], tags)


def _verdicts(section: Section, method: MethodRuns) -> Iterator[str]:
    for one in section.comparisons:
        if one.pair.method is method:
            yield f"Against {escape(one.pair.baseline.label)} ({escape(one.pair.name)}):"
            for measure, decision in ((FINAL, one.accuracy), (THROUGHPUT, one.verdicts[SPEED])):
                difference = format.estimate(one.estimates.get(measure.name))
                yield f"- {measure.heading}: {difference}, {format.verdict(decision)}"
            yield from (f"- {escape(flag.sentence)}" for flag in one.flags)
