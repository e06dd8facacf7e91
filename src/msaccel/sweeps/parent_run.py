"""The run of a sweep in MLflow: the parent of its jobs' runs, with the report and the ranking of the methods.

It is made together with the report, at the sweep's end, and reused if the sweep was resumed.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Sequence
from itertools import groupby
from pathlib import Path

from mlflow import MlflowClient
from mlflow.entities import Run

from msaccel.compare.group_runs import LONGEST_NAME, set_shared_params
from msaccel.compare.measures import FINAL, values
from msaccel.compare.render import format, write
from msaccel.compare.render.markdown import escape, table
from msaccel.compare.report import Report
from msaccel.errors import on_one_line
from msaccel.sweeps.seed_groups import keep_groups
from msaccel.tracking.status import KIND, SWEEP
from msaccel.tracking.store import tag_equals
from msaccel.tracking.ui_view import DESCRIPTION, PARENT

_RANKING = "**Methods by their mean final accuracy**"
_FIRST = 50  # methods in the description; the file has all


def keep_report(
    client: MlflowClient,
    report: Report,
    runs: Sequence[Run],
    sweep_id: str,
    overrides: Iterable[str],
    uri: str,
    *,
    complete: bool,
) -> str:
    """Keeps the report with the sweep's run, in each experiment that has runs of the sweep; returns where its page is.

    Args:
        runs: of the sweep, finished or not.
        overrides: the command of the sweep.
        complete: whether no job is left, so that the runs share exactly what the sweep does not vary.
    """
    typed = (text for text in overrides if not text.startswith("tracking."))
    name = on_one_line(" ".join(["sweep", *typed]), LONGEST_NAME)
    rows = ranking(report)
    place = ""
    with tempfile.TemporaryDirectory() as folder:
        write.write(client, report, Path(folder))
        Path(folder, "ranking.md").write_text(f"{_RANKING}\n\n{table(rows)}\n", encoding="utf-8")
        in_order = sorted(runs, key=lambda run: str(run.info.experiment_id))
        for experiment, group in groupby(in_order, key=lambda run: str(run.info.experiment_id)):
            children = list(group)
            parent = _parent(client, experiment, sweep_id, name)
            if parent.data.tags.get(DESCRIPTION, _RANKING).startswith(_RANKING):  # else somebody has written another
                text = f"{_RANKING}; what is certain of it, the report says\n\n{table(rows[: _FIRST + 1])}"
                client.set_tag(parent.info.run_id, DESCRIPTION, text)
            for child in children:
                if PARENT not in child.data.tags:
                    client.set_tag(child.info.run_id, PARENT, parent.info.run_id)
            place = write.keep(client, parent.info, Path(folder).iterdir(), uri)
            if complete and not parent.data.params:
                keep_groups(client, report, children, parent)
                set_shared_params(client, parent, children)
    return place


def _parent(client: MlflowClient, experiment: str, sweep_id: str, name: str) -> Run:
    found = client.search_runs([experiment], f"{tag_equals(KIND, SWEEP)} and {tag_equals('sweep_id', sweep_id)}")
    if found:
        return found[0]
    tags = {KIND: SWEEP, "sweep_id": sweep_id, "mlflow.source.name": "run.py", "mlflow.source.type": "LOCAL"}
    return client.create_run(experiment, run_name=name, tags=tags)


def ranking(report: Report) -> list[list[str]]:
    """Headings, and a row for each method, in falling order of mean final accuracy."""
    several = len(report.sections) > 1
    ranked = []
    for section in report.sections:
        for method in section.found.methods:
            found = list(values(method, FINAL).values())
            title = f" ({section.title})" if several else ""
            mean = sum(found) / len(found) if found else 0.0
            ranked.append((mean, [escape(method.label + title), format.count(method), format.average(found, "{:.2%}")]))
    ranked.sort(key=lambda row: -row[0])
    return [["", "method", "n", "final accuracy"], *([f"{place}", *row] for place, (_, row) in enumerate(ranked, 1))]
