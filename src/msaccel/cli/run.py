"""Hydra's task function: checks one job, then trains it in processes of its own, or resumes a run."""

from __future__ import annotations

import logging
from pathlib import Path

import hydra
from filelock import BaseFileLock
from hydra.core.hydra_config import HydraConfig
from hydra.types import RunMode
from omegaconf import DictConfig

from msaccel.accel import label
from msaccel.config import compose
from msaccel.config.bounds import bad_values
from msaccel.config.run_name import run_name, short_name
from msaccel.errors import ConfigError, UserError, of_the_disk
from msaccel.files import CONF
from msaccel.launch import launcher, log
from msaccel.launch.job import Result, Task
from msaccel.launch.job_folder import JobFolder
from msaccel.launch.lost_with_folder import lost_with
from msaccel.schema import Config
from msaccel.sweeps import joblib, search, session, submitit
from msaccel.sweeps.announcement import announcement, place
from msaccel.sweeps.folder import SweepFolder
from msaccel.sweeps.session import Session
from msaccel.tracking.status import FINISHED, REFUSED

_log = logging.getLogger(__name__)


@hydra.main(version_base="1.3", config_path=str(CONF), config_name="config")
def job(composed: DictConfig) -> float | None:
    """Hydra's task function: checks one job, then trains it in processes of its own.

    Returns:
        The objective of a sweeper that chooses its jobs: the validation accuracy, or 0 if the job did not finish. None
        in any other sweep.
    """
    gathered, context = session.current(), HydraConfig.get()
    gathered.end_if_interrupted()
    gathered.composed = True
    log.set_up(debug=log.wants_debug(context.verbose))
    folder = JobFolder(Path(context.runtime.output_dir))
    in_sweep = context.mode == RunMode.MULTIRUN
    try:
        if not in_sweep and (lost := lost_with("hydra.run.dir", folder.path, composed)):
            raise UserError(lost)
        lock = None if in_sweep else claim(folder, bool(composed.resume))
    except UserError as error:
        gathered.refusals.append(str(error))
        return None
    elsewhere = in_sweep and "basic_launcher" not in context.launcher["_target_"]  # beside other jobs' processes
    if "Joblib" in context.launcher["_target_"] and gathered.sweep is None:  # with n_jobs=1 this is the sweep's process
        joblib.end_with_sweep()
    try:
        config = checked(composed, in_sweep)
    except ConfigError as error:
        if elsewhere:
            folder.finish(Result(f"job {context.job.num}", REFUSED, message=str(error)))
            return 0.0
        gathered.refusals.append(str(error))  # Hydra would print lines of its own about an exception
        folder.discard()
        return 0.0
    overrides = list(context.overrides.task)
    if config.resume:
        if not config.device.server_rank:
            folder.discard()  # the run has a folder already
        resume(config, overrides, folder, gathered)
        return None
    sweep = SweepFolder(Path(context.sweep.dir))
    if in_sweep and not sweep.is_unfinished():
        folder.clear()  # this launcher's job has outlived its sweep, which another start has finished
        return 0.0
    searched = search.chooses(context)
    name = short_name(config)
    shown = f"{place(sweep, context.job.num)} {name}" if in_sweep else name
    try:
        sweep_id = sweep.sweep_id if in_sweep else ""
    except UserError as error:
        gathered.refusals.append(str(error))
        return 0.0
    task = Task(shown, overrides, sweep_id, quiet=elsewhere, run_name=run_name(config))
    config.sweep.resume = False  # it was only needed to choose the folder, and is not a setting of the run
    try:
        lock = lock or wait_for_lock(folder, task.name)
        if in_sweep and not folder.is_ended():
            _log.info("%s", announcement(sweep, context.job.num, label(config.accel), overrides))
        result = (
            launcher.run_in_sweep(config, folder, task, searched) if in_sweep else launcher.run(config, folder, task)
        )
    except submitit.JobInterrupted as interruption:
        result = submitit.interrupted(folder, task.name, interruption.reason)
    except OSError as error:
        reason = of_the_disk(error)
        if not reason or elsewhere or not in_sweep:
            raise
        gathered.refusals.append(f"{task.name}: {reason}")  # Hydra would leave out the sweep's end, with its report
        return 0.0
    if not in_sweep:  # a sweep collects the results at its end, from the folders of its jobs
        gathered.results.append(result)
        if result.status == FINISHED:
            folder.clear()
        elif result.status == REFUSED:
            folder.discard()  # unless an earlier try has left checkpoints
        elif folder.failed_before_its_run() and not result.crashed:
            folder.clear()  # its sentence says all: nothing of it can be resumed
    if lock:
        lock.release()
    return search.objective(result) if searched else None


def claim(folder: JobFolder, resumes: bool) -> BaseFileLock | None:
    """Locks the folder of a single job; a run that is resumed has one of its own, which is locked later.

    Raises:
        UserError: it is in use, or holds files that must not be mixed with the job's or removed with them.
    """
    if SweepFolder(folder.path).record():
        raise UserError(f"hydra.run.dir={folder.path} is the folder of a sweep; write another hydra.run.dir.")
    if folder.holds_others_files():
        raise UserError(f"hydra.run.dir={folder.path} holds other files; write a folder that is new or empty.")
    if resumes:
        return None
    try:
        lock = folder.lock("launcher")
    except UserError as error:
        raise UserError(
            f"hydra.run.dir={folder.path} is in use by a job that runs; write another hydra.run.dir."
        ) from error
    if folder.failed_before_its_run():
        folder.start_over()
    if folder.is_assigned():
        raise UserError(folder.why_occupied())
    return lock


def checked(composed: DictConfig, in_sweep: bool) -> Config:
    """The configuration of a job, with every value in its range.

    Raises:
        ConfigError: a value cannot be right, or a single run and a sweep are confused.
    """
    config = compose.typed(composed)
    if bad := bad_values(config):
        raise ConfigError("\n".join(bad))
    if in_sweep and config.resume:
        raise ConfigError(f"resume={config.resume} goes on with a single run; leave out -m.")
    if config.sweep.resume and not in_sweep:
        raise ConfigError("sweep.resume=true goes on with a sweep; write -m, or resume=latest for a single run.")
    return config


def wait_for_lock(folder: JobFolder, name: str) -> BaseFileLock:
    """Locks a job's folder; waits while a launcher from an earlier start of the sweep still works there."""
    try:
        return folder.lock("launcher")
    except UserError:
        _log.info("%s: waiting for an earlier start of the sweep, which still trains this job in another process", name)
        return folder.lock("launcher", wait=True)


def resume(config: Config, overrides: list[str], own_folder: JobFolder, gathered: Session) -> None:
    """Resumes a run, or leaves it untouched and gives the reason why it cannot be resumed."""
    _log.info("resume=%s: looks for the run in MLflow", config.resume)
    from msaccel.launch.resume import find  # MLflow's import takes a second

    try:
        found = find(config, overrides, own_folder)
        folder = found.folder
        lock = folder.lock("launcher")
        config.resume = found.task.resume  # another run may be the latest by now
        folder.restore_settings()  # of a resume that was killed before it began
        try:
            found = find(config, overrides, own_folder)  # again: the job may have ended while the lock was waited for
        except UserError:
            folder.discard()  # locking it has made it again
            raise
        if others := folder.ranks_here():
            raise UserError(
                f"resume={found.task.resume} is still trained by {others}; wait a few seconds if it is about to end, "
                "or end it."
            )
    except UserError as error:
        gathered.refusals.append(str(error))
        if config.device.server_rank:
            own_folder.discard()
        return
    result = launcher.run(found.config, folder, found.task)
    lock.release()
    gathered.results.append(result)
    if result.status == FINISHED and not SweepFolder(folder.path.parent).is_unfinished():
        folder.clear()  # in a sweep the folder records that this job is done
