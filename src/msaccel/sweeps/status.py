"""Run status: running, dead, finished. MLflow still lists a run whose process was killed as RUNNING.

If the job's folder is on this machine, its locks tell whether a process works there. Elsewhere the tag `heartbeat`
does, which the process sets twice a minute.
"""

from __future__ import annotations

import shlex
import socket
import time
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path

from mlflow import MlflowClient
from mlflow.entities import Run

from msaccel.config.overrides import override
from msaccel.errors import printable
from msaccel.launch.job_folder import JobFolder
from msaccel.sweeps.folder import SweepFolder
from msaccel.tracking.heartbeat import HEARTBEAT, SECONDS
from msaccel.tracking.mlflow_run import UPDATES
from msaccel.tracking.status import FINISHED, JOB_FOLDER, usable, whole_number
from msaccel.tracking.store import experiments, search_runs
from msaccel.tracking.ui_links import COMPARISONS

RUNNING, DEAD = "RUNNING", "DEAD"
SILENCE = 4 * SECONDS  # without a heartbeat, after which a run on another machine counts as dead
_MOST = 1000  # runs listed for a status, the newest; older ones are left out


@dataclass(frozen=True)
class RunStatus:
    """The status of one run. Times are seconds since 1970; its texts are printable, whatever stands in the store.

    Attributes:
        status: RUNNING, FINISHED, FAILED, KILLED, or DEAD if MLflow says RUNNING and no process is there.
        ended: None if it has not ended.
        heard: the last sign of life.
        update, updates: updates made so far and in all; None before the first log point, or if the run lacks them.
        seconds_left: of training, at the pace so far.
        accuracy: on the test set, final or of the last evaluation.
        go_on: the command that resumes the run, or its sweep if that was interrupted; empty if that is impossible here.
    """

    name: str
    run_id: str
    experiment: str
    status: str
    started: float
    ended: float | None
    heard: float
    update: int | None
    updates: int | None
    samples_per_sec: float | None
    seconds_left: float | None
    accuracy: float | None
    sweep_id: str
    go_on: str

    def in_store(self, uri: str) -> RunStatus:
        """The same run, with the store named in its command unless a sweep's command names it already."""
        has_store = not self.go_on or "tracking.uri=" in self.go_on
        return self if has_store else replace(self, go_on=f"{self.go_on} {shlex.quote(override('tracking.uri', uri))}")


def find(client: MlflowClient, experiment: str | None, recent: int) -> list[RunStatus]:
    """The runs that MLflow calls RUNNING, the newest first; then those that ended last.

    Args:
        experiment: its name; None for all experiments.
        recent: the number of ended runs.
    """
    running = _found(client, experiment, "attributes.status = 'RUNNING'", "attributes.start_time DESC")
    ended = _found(client, experiment, "attributes.status != 'RUNNING'", "attributes.end_time DESC")
    return [run_status(run, name) for run, name in [*running, *ended[:recent]]]


def _found(client: MlflowClient, experiment: str | None, wanted: str, order: str) -> list[tuple[Run, str]]:
    names = experiments(client, experiment)
    ids = [number for number, name in names.items() if name != COMPARISONS]
    runs = search_runs(client, ids, wanted, max_results=_MOST, order_by=[order]) if ids else []
    # Other programs may use the store, too.
    return [(run, names[run.info.experiment_id]) for run in runs if "accel" in run.data.tags]


def run_status(run: Run, experiment: str) -> RunStatus:
    """The status of a run of an experiment now."""
    info, tags, metrics = run.info, run.data.tags, usable(run.data.metrics)
    started, heard = (info.start_time or 0) / 1000, _last_sign_of_life(run)
    folder = _folder(tags)
    status = info.status
    if status == RUNNING and not _is_alive(folder, heard):
        status = DEAD
    update = next((int(m.step) for m in run.data.to_proto().metrics if m.key == "time/train_s"), None)
    updates = whole_number(tags.get(UPDATES, ""))
    seconds = metrics.get("time/train_s")
    left = (updates - update) * seconds / update if update and updates and seconds is not None else None
    return RunStatus(
        name=printable(info.run_name or info.run_id),
        run_id=info.run_id,
        experiment=experiment,
        status=status,
        started=started,
        ended=info.end_time / 1000 if info.end_time and status not in (RUNNING, DEAD) else None,  # a resumed one
        heard=heard,
        update=update,
        updates=updates,
        samples_per_sec=None if tags.get("simulated") == "true" else metrics.get("throughput/samples_per_sec"),
        seconds_left=left if status == RUNNING else None,
        accuracy=metrics.get("final/accuracy", metrics.get("eval/accuracy")),
        sweep_id=printable(tags.get("sweep_id", "")),
        go_on=printable(_resume_command(info.run_id, folder)) if status not in (RUNNING, FINISHED) else "",
    )


def _last_sign_of_life(run: Run) -> float:
    """The time of the last heartbeat or metric, or of the start."""
    signs = [(run.info.start_time or 0) / 1000, *(m.timestamp / 1000 for m in run.data.to_proto().metrics)]
    with suppress(KeyError, ValueError, OverflowError):
        signs.append(datetime.fromisoformat(run.data.tags[HEARTBEAT]).timestamp())
    return max(signs)


def _folder(tags: dict[str, str]) -> JobFolder | None:
    """The job's folder, if it is on this machine."""
    host, _, path = tags.get(JOB_FOLDER, "").partition(":")
    folder = JobFolder(Path(path))
    with suppress(OSError):  # another user's
        if path and host == socket.gethostname() and folder.config.exists():
            return folder
    return None


def _is_alive(folder: JobFolder | None, heard: float) -> bool:
    if folder:
        with suppress(OSError):  # another user's
            return folder.is_held("launcher") or bool(folder.ranks_here())
    return time.time() - heard < SILENCE


def _resume_command(run_id: str, folder: JobFolder | None) -> str:
    if folder is None:
        return ""
    sweep = SweepFolder(folder.path.parent)
    if sweep.record():
        return sweep.resume_command()
    return f"python run.py resume={run_id}"
