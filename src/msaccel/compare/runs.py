"""Runs read from MLflow, a thousand per call; of each run only what a comparison needs is kept."""

from __future__ import annotations

import gc
import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields

from mlflow import MlflowClient
from mlflow.entities import Run

from msaccel.accel import methods
from msaccel.data.sets import data_sets
from msaccel.errors import UserError, printable
from msaccel.schema import REQUIRED, KernelsSettings, TrainSettings, logged
from msaccel.tracking.provenance import DIRTY
from msaccel.tracking.status import KIND, changed_settings, usable, whole_number
from msaccel.tracking.store import experiments, search_runs, tag_equals

_PAGE = 1000
_TARGET = "time/to_target_s"


@dataclass(frozen=True, eq=False)
class Record:
    """One training run. Its texts are printable, since whoever may write to the store has chosen them.

    Attributes:
        started, end_time: milliseconds since 1970; a running run has no end.
        params, tags: as logged, by key.
        metrics: the last value of each, where that is finite.
        digest: of the training data.
        target_update: the update of the first evaluation that reached the target.
        samples: used for training, the whole budget where the run has finished.
    """

    run_id: str
    experiment_id: str
    name: str
    status: str
    started: int
    end_time: int | None
    params: dict[str, str]
    tags: dict[str, str]
    metrics: dict[str, float]
    digest: str = ""
    target_update: int | None = None
    samples: int | None = None

    @property
    def seed(self) -> int:
        return whole_number(self.params.get("seed", self.tags.get("seed", ""))) or 0

    @property
    def updates(self) -> int | None:
        """Those of the whole job."""
        return whole_number(self.tags.get("updates", ""))

    @property
    def simulated(self) -> bool:
        return self.tags.get("simulated") == "true"

    def number(self, key: str) -> float | None:
        """A parameter as a number, None where it is null, missing, a word or not finite."""
        try:
            found = float(self.params[key])
        except (KeyError, ValueError):
            return None
        return found if math.isfinite(found) else None


def find(
    client: MlflowClient, experiment: str | None = None, sweep_id: str | None = None, tags: Sequence[str] = ()
) -> list[Record]:
    """The training runs of an experiment or of all, with that sweep_id and those tags; deleted ones are left out.

    Args:
        tags: each `key=value`.

    Raises:
        UserError: a tag is not written as `key=value`, or MLflow cannot search for the sweep_id.
    """
    wanted = " and ".join([*map(_clause, tags), *([tag_equals("sweep_id", sweep_id)] if sweep_id else [])])
    ids = [*experiments(client, experiment)]
    found: list[Record] = []
    token: str | None = None
    while ids:
        with _without_collection():
            page = search_runs(client, ids, wanted, max_results=_PAGE, page_token=token)
            found += [record(run) for run in page if is_training(run)]
        token = page.token
        if not token:
            break
    return found


def record(run: Run) -> Record:
    """What a comparison needs of a run."""
    data, info = run.data, run.info
    inputs = run.inputs.dataset_inputs if run.inputs else []
    reached = None
    if _TARGET in data.metrics:  # only the protobuf message tells at which update a last value was logged
        reached = next(int(metric.step) for metric in data.to_proto().metrics if metric.key == _TARGET)
    metrics = usable(data.metrics)
    used = metrics.get("throughput/samples_per_sec", 0.0) * metrics.get("time/train_s", 0.0)
    return Record(
        run_id=info.run_id,
        experiment_id=info.experiment_id,
        name=printable(info.run_name or info.run_id),
        status=info.status,
        started=info.start_time or 0,
        end_time=info.end_time,
        params=_printable(_added_since(data.params) | data.params | changed_settings(data.tags)),
        tags=_printable(data.tags),
        metrics=metrics,
        digest=printable(inputs[0].dataset.digest) if inputs else "",
        target_update=reached,
        samples=round(used) or None,
    )


def _printable(texts: dict[str, str]) -> dict[str, str]:
    return {printable(key): printable(value) for key, value in texts.items()}


def _added_since(params: dict[str, str]) -> dict[str, str]:
    """The values of keys that may not have existed when a run was logged: the defaults in the settings' classes."""
    groups: dict[str, type] = {"train": TrainSettings, "kernels": KernelsSettings}
    if data_set := data_sets().get(params.get("data.name", "")):
        groups["data"] = data_set.SETTINGS
    used = {key.split(".")[1] for key in params if key.startswith("accel.")}
    groups |= {f"accel.{name}": method.settings for name, method in methods().items() if name in used}
    added = ((f"{group}.{item.name}", item.default) for group, kind in groups.items() for item in fields(kind))
    return {key: logged(value) for key, value in added if value != REQUIRED}


def is_training(run: Run) -> bool:
    """Whether msaccel trained it: reports, sweeps and other programs' runs have nothing to compare."""
    return "accel" in run.data.params and KIND not in run.data.tags


def _clause(tag: str) -> str:
    key, separator, value = tag.partition("=")
    if not (key and separator) or set("`'\"") & set(tag):
        raise UserError(f"--tag={tag} is not a tag; write key=value without quotes, for example --tag model=lenet.")
    return tag_equals(key, value)


@contextmanager
def _without_collection() -> Iterator[None]:
    """MLflow makes a hundred objects for a run, and looking for garbage among them takes most of the time."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def short(commit: str) -> str:
    """Twelve characters of a commit, and whether files differed from it."""
    return commit.removesuffix(DIRTY)[:12] + (DIRTY if commit.endswith(DIRTY) else "")
