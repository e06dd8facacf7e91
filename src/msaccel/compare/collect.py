"""Runs read from MLflow, and grouped: runs of one group differ by their seed alone."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from mlflow import MlflowClient
from mlflow.entities import Run

from msaccel.jobfolder import FINISHED

# Where a job reads and writes does not change what it computes.
_NOT_COMPARED = ("seed", "data.root", "data.cache", "tracking.")


@dataclass(frozen=True)
class Group:
    """Finished runs with the same settings.

    Attributes:
        settings: the parameters by which the groups differ, by dotted key; `accel` always comes first.
        runs: the latest one of each seed, in the order of seeds.
        repeats: further runs of the same seeds; they repeat the same numbers, so they are no evidence and not counted.
    """

    settings: dict[str, str]
    runs: list[Run]
    repeats: int

    def metric(self, name: str) -> list[float]:
        """The last value of a metric in every run that has it."""
        return [run.data.metrics[name] for run in self.runs if name in run.data.metrics]


def find(client: MlflowClient, experiment: str | None, sweep_id: str | None) -> list[Run]:
    """All runs of an experiment or a sweep that have not been deleted; of every experiment where neither is given."""
    experiments = [e for e in client.search_experiments() if experiment in (None, e.name)]
    wanted = f"tags.sweep_id = '{sweep_id}'" if sweep_id else ""
    found: list[Run] = []
    token: str | None = None
    while experiments:
        page = client.search_runs([e.experiment_id for e in experiments], wanted, max_results=1000, page_token=token)
        found += page
        token = page.token
        if not token:
            break
    return found


def group(runs: Iterable[Run]) -> list[Group]:
    """Groups of finished runs, each with the settings by which it differs from the others; `none` comes first."""
    finished = sorted((run for run in runs if run.info.status == FINISHED), key=lambda run: run.info.start_time)
    differing = ["accel", *sorted(_differing([run.data.params for run in finished]) - {"accel"})]
    by_settings: dict[tuple[str, ...], list[Run]] = {}
    for run in finished:
        by_settings.setdefault(tuple(run.data.params.get(key, "") for key in differing), []).append(run)
    groups = []
    for values, members in sorted(by_settings.items(), key=lambda item: (item[0][0] != "none", item[0])):
        latest = {int(run.data.params["seed"]): run for run in members}
        seeds = [latest[seed] for seed in sorted(latest)]
        groups.append(Group(dict(zip(differing, values, strict=True)), seeds, len(members) - len(seeds)))
    return groups


def _differing(runs: list[dict[str, str]]) -> set[str]:
    """Keys with more than one value among the runs that have them; a method's own keys stand in its runs alone."""
    keys = {key for params in runs for key in params if not key.startswith(_NOT_COMPARED)}
    return {key for key in keys if len({params[key] for params in runs if key in params}) > 1}
