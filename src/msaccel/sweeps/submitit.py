"""Sweeps whose jobs submitit starts: signals in the jobs, and waiting for them when submitit gives up.

The process that started the sweep waits for its jobs. On its own, submitit would restart a job from its first update
when its time is over, would ignore SIGTERM, and would give up the whole sweep when one job is lost.
"""

from __future__ import annotations

import logging
import os
import shutil
import signal
import time
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from types import FrameType
from typing import Any

from hydra.experimental.callback import Callback
from omegaconf import DictConfig, OmegaConf

from msaccel.launch.job import Result
from msaccel.launch.job_folder import JobFolder
from msaccel.launch.outcome import record
from msaccel.sweeps import session
from msaccel.sweeps.folder import STOPPING
from msaccel.tracking.status import FAILED, KILLED
from msaccel.tracking.stopping import SECONDS_TO_END

_log = logging.getLogger(__name__)
# Time for a worker to log what it has after the process that started it is gone.
_SECONDS_FOR_A_WORKER = SECONDS_TO_END + 5
_FOLDER = "${hydra.sweep.dir}/.submitit/%j"
_INTERRUPTED = "interrupted, by hand or by the cluster"
_REASONS = {
    signal.SIGINT: _INTERRUPTED,
    signal.SIGTERM: _INTERRUPTED,
    signal.SIGUSR2: "its time was nearly over; write hydra.launcher.timeout_min= with more minutes",  # from submitit
}


class Submitted(Callback):
    """The callback that submitit's presets add."""

    def on_multirun_start(self, config: DictConfig, **kwargs: Any) -> None:
        session.current().submitted = config

    def on_job_start(self, config: DictConfig, **kwargs: Any) -> None:
        for number in _REASONS:
            signal.signal(number, _interrupt)


class JobInterrupted(KeyboardInterrupt):
    """A job of submitit's received a signal to end; `reason` says why."""

    def __init__(self, signal_number: int) -> None:
        super().__init__()
        self.reason = _REASONS[signal.Signals(signal_number)]


def refusals(config: DictConfig) -> list[str]:
    """A sentence for each reason why a launcher of submitit's cannot start the sweep's jobs here."""
    launcher = config.hydra.launcher
    if "submitit" not in launcher["_target_"]:
        return []
    found = [
        f"hydra.launcher.{key}={launcher[key]} would train a job several times; write hydra.launcher.{key}=1 and "
        "choose the ranks of a job with device=."
        for key in ("nodes", "tasks_per_node")
        if launcher[key] != 1
    ]
    unresolved: Any = OmegaConf.to_container(launcher, resolve=False)
    if unresolved["submitit_folder"] != _FOLDER:
        found.append(
            "hydra.launcher.submitit_folder would be shared with other sweeps, whose jobs this one could end; leave it "
            "out: each sweep has one below hydra.sweep.dir."
        )
    if "SlurmLauncher" in launcher["_target_"] and not (shutil.which("srun") and shutil.which("sbatch")):
        found.append(
            "hydra/launcher=submitit_slurm needs Slurm's commands srun and sbatch, which are not here; start the sweep "
            "on a login node of the cluster, or write hydra/launcher=submitit_local to try it on this machine."
        )
    return found


def interrupted(folder: JobFolder, name: str, reason: str) -> Result:
    """Writes and returns the result of a job that was interrupted for this reason."""
    result = folder.result() or Result(name, KILLED)
    return folder.finish(replace(result, message=reason))


def _interrupt(number: int, frame: FrameType | None) -> None:
    for each in _REASONS:
        signal.signal(each, signal.SIG_IGN)  # clusters send it twice, the second time during the clean-up
    raise JobInterrupted(number)


def end_jobs(config: DictConfig) -> None:
    """Ends the jobs of an interrupted sweep on this machine; jobs in Slurm continue."""
    if _is_local(config):
        _log.warning(STOPPING)
        for job_id in _job_ids(config):
            with suppress(ProcessLookupError):
                os.kill(int(job_id), signal.SIGTERM)  # submitit's process for the job, which passes it on
        _wait(config)
    elif ids := _job_ids(config):
        _log.warning("the jobs go on in Slurm; to end them: scancel %s", " ".join(ids))


def settle_lost_jobs(config: DictConfig, error: Exception) -> str:
    """Waits, after submitit gave up, for the jobs that still run, and marks those that left no result as FAILED.

    Returns:
        A sentence if no job was submitted at all, else an empty text.
    """
    ids = _job_ids(config)
    if not ids:
        reason = next(iter(str(error).splitlines()), type(error).__name__)[:200]
        return (
            f"The jobs could not be submitted ({reason}); write hydra.launcher.partition=, account= or another key of "
            "hydra.launcher as your cluster requires."
        )
    _wait(config)
    for number in range(len(ids)):
        folder = JobFolder(Path(config.hydra.sweep.dir) / str(number))
        folder.path.mkdir(exist_ok=True)
        deadline = time.monotonic() + _SECONDS_FOR_A_WORKER
        while folder.result() is None and folder.read("job.json") and time.monotonic() < deadline:
            time.sleep(0.2)
        if folder.result() is None:
            name = (folder.read("job.json") or {}).get("name", f"job {number}")
            record(folder, name, FAILED, f"it was lost before it could say how it ended, see {_logs(config)}")
    return ""


def _wait(config: DictConfig) -> None:
    for job_id in _job_ids(config):
        if _is_local(config):
            with suppress(ChildProcessError):
                os.waitpid(int(job_id), 0)
        else:
            from submitit import SlurmJob

            SlurmJob(str(config.hydra.launcher.submitit_folder), job_id).wait()


def _job_ids(config: DictConfig) -> list[str]:
    """The jobs' ids in Slurm, or the ids of submitit's processes for them here."""
    return sorted(file.name.removesuffix("_submitted.pkl") for file in _logs(config).glob("*/*_submitted.pkl"))


def _logs(config: DictConfig) -> Path:
    return Path(str(config.hydra.launcher.submitit_folder).split("%j")[0])


def _is_local(config: DictConfig) -> bool:
    return "LocalLauncher" in config.hydra.launcher["_target_"]
