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
        runs: one for each seed, in the order of seeds.
    """

    settings: dict[str, str]
    runs: list[Run]

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
    finished = sorted((r for r in runs if r.info.status == FINISHED), key=lambda r: int(r.data.tags.get("seed", 0)))
    kept = {run.info.run_id: _compared(run.data.params) for run in finished}
    keys = sorted({key for params in kept.values() for key in params}, key=lambda key: (key != "accel", key))
    differing = [key for key in keys if key == "accel" or len({params.get(key, "") for params in kept.values()}) > 1]
    groups: dict[tuple[str, ...], list[Run]] = {}
    for run in finished:
        groups.setdefault(tuple(kept[run.info.run_id].get(key, "") for key in differing), []).append(run)
    ordered = sorted(groups.items(), key=lambda item: (item[0][0] != "none", item[0]))
    return [Group(dict(zip(differing, values, strict=True)), members) for values, members in ordered]


def _compared(params: dict[str, str]) -> dict[str, str]:
    return {key: value for key, value in params.items() if not key.startswith(_NOT_COMPARED)}
