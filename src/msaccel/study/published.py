"""The published runs of a study, `experiments/<name>/runs.csv`, and a check that they can be reproduced.

The study's answers are computed from them alone, so tables and plots over studies can be written without its store.
"""

from __future__ import annotations

import csv
import io
import itertools
import math
import random
import shlex
import tempfile
from dataclasses import replace
from pathlib import Path

from msaccel.compare.measures import FINAL
from msaccel.compare.runs import Record
from msaccel.compare.runs import find as find_runs
from msaccel.errors import ConfigError
from msaccel.study.jobs import RunIndex, StudyJob, logged_by, make_jobs
from msaccel.study.launcher_pool import Launchers
from msaccel.study.protocol import Study
from msaccel.study.runner import StudyRunner
from msaccel.tracking.status import FAILED, FINISHED, IN_TURNS, whole_number
from msaccel.tracking.store import open_store

_RESULTS = ("train/", "val/", "eval/", "best/", "final/")  # metrics that do not measure the machine
_JOB = ("part", "arm", "rate", "seed", "overrides")
_OF_RUN = ("run_id", "status", "started", "end_time", "digest", "target_update", "samples")
_TAGS = ("processor", "kernels", "git_commit", "simulated", "updates", "data", "selected_on", "diverged", IN_TURNS)


def as_csv(runner: StudyRunner) -> str:
    """The text of the file: a line for each run of each part of a study.

    Raises:
        ConfigError: fewer than are published, or the published ones cannot be read.
    """
    found = [
        (key, job, run)
        for key, part in runner.study.parts.items()
        for job, run in runner.runs.of_jobs([*runner.jobs(part), *itertools.chain(*runner.controls(part))]).items()
    ]
    here, there = len(found), len(records(runner.study))
    if here < there:
        train = "leave out --no-training to train what is missing"
        if runner.published:
            why = f"the trials by which they were chosen are not complete; {train}"
        else:
            why = f"this store has {here}; add --published to count them too"
        raise ConfigError(
            f"study {runner.study.name} has {there} published runs, of which its card would lose some, since {why}."
        )
    metrics = sorted({name for *_, run in found for name in run.metrics})
    text = io.StringIO()
    rows = csv.DictWriter(text, [*_JOB, *_OF_RUN, *_TAGS, *metrics], restval="", lineterminator="\n")
    rows.writeheader()
    for part, job, run in found:
        of_run = {name: getattr(run, name) for name in _OF_RUN}
        tags = {name: run.tags[name] for name in _TAGS if name in run.tags}
        of_job = dict(zip(_JOB, (part, job.arm, job.rate, job.seed, shlex.join(job.overrides)), strict=True))
        rows.writerow({**of_job, **of_run, **tags, **run.metrics})
    return text.getvalue()


def file_of(study: Study) -> Path:
    return study.card.with_name("runs.csv")


def is_published(study: Study) -> bool:
    return file_of(study).exists()


def read(study: Study) -> list[tuple[StudyJob, Record]]:
    """The published runs of a study.

    Raises:
        ConfigError: there are none, `study.yaml` has changed since, or the file is damaged.
    """
    path = file_of(study)
    if not is_published(study):
        raise ConfigError(f"study {study.name} has published no runs; train it: python -m msaccel study {study.name}.")
    found = []
    try:
        text = path.read_text()
        rows = csv.DictReader(io.StringIO(text), strict=True)
        expected = {*_JOB, *_OF_RUN, *_TAGS} - {IN_TURNS}  # which files had not before speeds were measured in turns
        if not text.endswith("\n") or not expected <= {*(rows.fieldnames or ())}:
            raise ValueError
        for row in rows:
            if None in row or None in row.values():
                raise ValueError
            found.append(_published(study, row))
    except (OSError, ValueError, csv.Error) as error:
        damaged = len(found) + 2
        raise ConfigError(
            f"{path} is damaged near line {damaged}; restore it from git, or remove it and train the study."
        ) from error
    return found


def records(study: Study) -> list[Record]:
    """The published runs of a study, none if there are none yet."""
    return [record for _, record in read(study)] if is_published(study) else []


def _published(study: Study, row: dict[str, str]) -> tuple[StudyJob, Record]:
    part = study.parts.get(row["part"])
    if part is None or row["arm"] not in part.arms:
        raise ConfigError(
            f"{file_of(study)} has runs of {row['part']}, {row['arm']}, which study.yaml lacks; remove the file "
            "and train the study."
        )
    rate, seed = float(row["rate"]), int(row["seed"])
    (job,) = make_jobs(study, part, (), {row["arm"]: [rate]}, [seed])
    if row["overrides"] != shlex.join(job.overrides):
        raise ConfigError(
            f"{file_of(study)} has runs of {row['part']}, {row['arm']}, with other settings than study.yaml declares "
            "now; remove the file and train the study."
        )
    others = row.keys() - {*_JOB, *_OF_RUN, *_TAGS}
    metrics = {name: float(row[name]) for name in sorted(others) if row[name]}
    if not all(map(math.isfinite, metrics.values())) or row["status"] not in (FINISHED, FAILED):
        raise ValueError
    record = Record(
        run_id=row["run_id"],
        experiment_id="",
        name=str(job),
        status=row["status"],
        started=int(row["started"]),
        end_time=whole_number(row["end_time"]),
        params=logged_by(job),
        tags={name: row[name] for name in _TAGS if row.get(name)},
        metrics=metrics,
        digest=row["digest"],
        target_update=whole_number(row["target_update"]),
        samples=whole_number(row["samples"]),
    )
    return job, record


def check(study: Study, many: int, choice: int) -> bool:
    """Trains `many` published runs again, chosen by a seed, in a store that is removed afterwards.

    Prints whether each was reproduced, and returns whether all were.

    Raises:
        ConfigError: nothing that could be trained again was published, or `study.yaml` has changed since.
    """
    trained = [(job, run) for job, run in read(study) if run.status == FINISHED and not job.in_turns]
    if not trained:
        raise ConfigError(f"study {study.name} has no published run of a job that finished alone; name another study.")
    chosen = random.Random(choice).sample(trained, min(many, len(trained)))
    with tempfile.TemporaryDirectory() as folder:
        uri, kept = f"sqlite:///{folder}/mlflow.db", f"tracking.artifacts={folder}/artifacts"
        jobs = [replace(job, settings=(*job.settings, kept)) for job, _ in chosen]
        with Launchers(uri, f"check-{study.name}") as launchers:
            launchers.train(jobs, 1, lambda *_: None)
        index = RunIndex(find_runs(open_store(uri), study.name))
        answers = [came_out(run, index.find(job), study.tolerance) for (_, run), job in zip(chosen, jobs, strict=True)]
    for (_, said), job in zip(answers, jobs, strict=True):
        print(f"{study.name}: {job}: {said}")
    return all(good for good, _ in answers)


def came_out(published: Record, run: Record | None, tolerance: float) -> tuple[bool, str]:
    """Whether a run has the published numbers, and a sentence: equal to the bit on the same processor with the same
    kernels, else within `tolerance` points. A processor published by its name alone may have been another."""
    before, now = FINAL.read(published), FINAL.read(run) if run else None
    if run is None or before is None or now is None:
        return False, "published as finished, and now it did not finish"
    said = f"published {before:.2%}, now {now:.2%}"
    if _results(run) == _results(published):
        return True, f"{said}, equal to the last bit"
    if all(run.tags.get(tag) == published.tags.get(tag) for tag in ("processor", "kernels")):
        return False, f"{said}, NOT equal to the last bit on an equal machine"
    near = abs(now - before) <= tolerance / 100
    how = "within" if near else "NOT within"
    return near, f"{said}, {how} {tolerance:g} points, on a machine that is not known to be equal"


def _results(run: Record) -> dict[str, float]:
    return {name: value for name, value in run.metrics.items() if name.startswith(_RESULTS)}
