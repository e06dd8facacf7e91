"""The published runs of a study, `experiments/<name>/runs.json`, and a check that they come out again."""

from __future__ import annotations

import hashlib
import json
import random
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from msaccel.compare.measures import FINAL
from msaccel.compare.runs import Record
from msaccel.compare.runs import find as find_runs
from msaccel.errors import ConfigError
from msaccel.files import atomic_write_text
from msaccel.study.jobs import RunIndex, StudyJob, make_jobs
from msaccel.study.launchers import Launchers
from msaccel.study.protocol import Study
from msaccel.study.runner import StudyRunner
from msaccel.tracking.status import FINISHED
from msaccel.tracking.store import open_store

_RESULTS = ("train/", "val/", "eval/", "best/", "final/")  # metrics that are no measurement of the machine
_ORIGIN = ("processor", "kernels", "git_commit")  # tags; the first two decide the bits

Origin = tuple[str, ...]


@dataclass(frozen=True)
class PublishedRun:
    """One run: which job it was, and what it came to.

    Attributes:
        digest: of the last values of all results, to the last bit.
        origin: processor, kernels and commit.
    """

    part: str
    arm: str
    rate: float
    seed: int
    accuracy: float
    digest: str
    origin: Origin


def publish(runner: StudyRunner) -> None:
    """Writes the finished runs of a study beside its card."""
    rows = list(_rows(runner))
    origins = list(dict.fromkeys(row.origin for row in rows))
    lines = [
        json.dumps([one.part, one.arm, one.rate, one.seed, one.accuracy, one.digest, origins.index(one.origin)])
        for one in rows
    ]
    runs = ",\n".join(lines)
    atomic_write_text(_file(runner.study), f'{{"origins": {json.dumps(origins)},\n"runs": [\n{runs}\n]}}\n')


def _rows(runner: StudyRunner) -> Iterator[PublishedRun]:
    for key, part in runner.study.parts.items():
        for job, run in runner.runs.of_jobs(runner.jobs(part)).items():
            accuracy = FINAL.read(run)
            if run.status == FINISHED and accuracy is not None:
                yield PublishedRun(key, job.arm, job.rate, job.seed, accuracy, digest(run), _origin(run))


def _origin(run: Record) -> Origin:
    return tuple(run.tags.get(tag, "unknown") for tag in _ORIGIN)


def digest(run: Record) -> str:
    """Eight characters for all results of a run."""
    results = sorted((name, value) for name, value in run.metrics.items() if name.startswith(_RESULTS))
    return hashlib.sha256(json.dumps(results).encode()).hexdigest()[:8]


def _file(study: Study) -> Path:
    return study.card.with_name("runs.json")


def is_published(study: Study) -> bool:
    return _file(study).exists()


def read(study: Study) -> list[PublishedRun]:
    """The published runs of a study.

    Raises:
        ConfigError: there are none.
    """
    if not is_published(study):
        raise ConfigError(f"study {study.name} has published no runs; train it: python -m msaccel study {study.name}.")
    found = json.loads(_file(study).read_text())
    return [PublishedRun(*[*one, tuple(found["origins"][origin])]) for *one, origin in found["runs"]]


def check(study: Study, many: int, choice: int) -> bool:
    """Trains some of the published runs again, in a store that is removed afterwards, and prints how each came out.

    Args:
        many: the number of runs.
        choice: the seed of the choice.

    Returns:
        Whether all came out.

    Raises:
        ConfigError: nothing was published, `study.yaml` has changed since, or no run is asked for.
    """
    if many < 1:
        raise ConfigError(f"--jobs={many} checks nothing; write 1 or more.")
    published = read(study)
    chosen = random.Random(choice).sample(published, min(many, len(published)))
    with tempfile.TemporaryDirectory() as folder:
        uri, jobs = f"sqlite:///{folder}/mlflow.db", [_job(study, one, folder) for one in chosen]
        with Launchers(uri, f"check-{study.name}") as launchers:
            for job in jobs:
                launchers.train([job], 1, lambda *_: None)
        index = RunIndex(find_runs(open_store(uri), study.name))
        answers = [came_out(one, index.find(job), study.tolerance) for one, job in zip(chosen, jobs, strict=True)]
    for (_, said), job in zip(answers, jobs, strict=True):
        print(f"{study.name}: {job}: {said}")
    return all(good for good, _ in answers)


def _job(study: Study, one: PublishedRun, folder: str) -> StudyJob:
    part = study.parts.get(one.part)
    if part is None or one.arm not in part.arms:
        raise ConfigError(f"{_file(study)} has runs of {one.part}, {one.arm}, which study.yaml lacks; train the study.")
    return make_jobs(study, part, [f"tracking.artifacts={folder}/artifacts"], {one.arm: [one.rate]}, [one.seed])[0]


def came_out(one: PublishedRun, run: Record | None, tolerance: float) -> tuple[bool, str]:
    """Whether a run has the published numbers, and a sentence: to the bit on the same processor with the same kernels,
    else within so many points."""
    accuracy = FINAL.read(run) if run else None
    if run is None or accuracy is None:
        return False, f"published {one.accuracy:.2%}, and now it did not finish"
    said = f"published {one.accuracy:.2%}, now {accuracy:.2%}"
    if _origin(run)[:2] == one.origin[:2]:
        equal = digest(run) == one.digest
        return equal, f"{said}, {'equal to the last bit' if equal else 'NOT equal to the last bit on an equal machine'}"
    near = abs(accuracy - one.accuracy) <= tolerance / 100
    return near, f"{said}, {'within' if near else 'NOT within'} {tolerance:g} points, on another processor or kernels"
