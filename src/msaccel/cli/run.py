"""The entry of `python run.py`: runs Hydra, tells users of an error in one sentence, and sets the exit code.

Exit codes: 0 all jobs finished, 1 a job failed, 2 something was refused before it started, 130 interrupted.
"""

from __future__ import annotations

import logging
import os
import signal
import sys
from collections.abc import Iterable
from contextlib import redirect_stdout, suppress
from io import StringIO
from pathlib import Path
from types import FrameType

import hydra
from filelock import BaseFileLock
from hydra._internal.utils import get_args_parser
from hydra.core.hydra_config import HydraConfig
from hydra.types import RunMode
from omegaconf import DictConfig

from msaccel.config import compose, own_files
from msaccel.config.bounds import bad_values
from msaccel.config.derived import accel_label
from msaccel.config.messages import HYDRA_ERRORS, sentence, without_passwords
from msaccel.config.overrides import problems
from msaccel.config.run_name import run_name, short_name
from msaccel.errors import ConfigError, UserError, of_the_disk
from msaccel.files import CONF
from msaccel.launch import launcher, log
from msaccel.launch.job_folder import JobFolder, Result, Task
from msaccel.schema import Config
from msaccel.sweeps import callback, presets, search, session, submitit
from msaccel.sweeps.announcement import announcement, place
from msaccel.sweeps.folder import RESUME_HINT, SweepFolder
from msaccel.sweeps.session import Session
from msaccel.tracking.credentials import scrubbed
from msaccel.tracking.status import FINISHED, KILLED, REFUSED

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
        lock = None if in_sweep else claim(folder, bool(composed.resume))
    except UserError as error:
        gathered.refusals.append(str(error))
        return None
    elsewhere = in_sweep and "basic_launcher" not in context.launcher["_target_"]  # in a process beside other jobs'
    if "Joblib" in context.launcher["_target_"]:
        presets.end_with_sweep()
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
    sweep = Path(context.sweep.dir)
    if in_sweep and not SweepFolder(sweep).is_unfinished():
        folder.clear()  # this launcher's job has outlived its sweep, which another start has finished
        return 0.0
    searched = search.chooses(context)
    name = short_name(config)
    shown = f"{place(SweepFolder(sweep), context.job.num)} {name}" if in_sweep else name
    task = Task(shown, overrides, sweep.name if in_sweep else "", quiet=elsewhere, run_name=run_name(config))
    config.sweep.resume = False  # it has chosen the folder, and is no setting of the run
    try:
        lock = lock or wait_for_lock(folder, task.name)
        if in_sweep and not folder.is_ended():
            _log.info("%s", announcement(SweepFolder(sweep), context.job.num, accel_label(config), overrides))
        result = (
            launcher.run_in_sweep(config, folder, task, searched) if in_sweep else launcher.run(config, folder, task)
        )
    except submitit.JobInterrupted as interruption:
        result = submitit.interrupted(folder, task.name, interruption.reason)
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
        UserError: it is in use, or holds something that must not be mixed with the job or removed with it.
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
    """Locks a job's folder; waits for a launcher of an earlier start of the sweep that still works there."""
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
        try:
            found = find(config, overrides, own_folder)  # again: the job may have ended while the lock was waited for
        except UserError:
            folder.discard()  # of which the lock has made a new one
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


def main() -> int:
    """Runs the command line; returns the exit code."""
    log.set_up()
    full_errors = os.environ.get("HYDRA_FULL_ERROR") == "1"
    os.environ["MSACCEL_TRACEBACK"] = "1" if full_errors else ""  # for the workers
    os.environ["HYDRA_FULL_ERROR"] = "1"  # Hydra then raises what it would print, and the sentence is made here
    compose.register()
    presets.register()
    sys.argv[1:] = compose.readable(sys.argv[1:])
    arguments, misplaced = get_args_parser().parse_known_args()
    if misplaced:
        _log.error("%s cannot be read there; write flags first, then all overrides.", without_passwords(misplaced[0]))
        return 2
    if arguments.experimental_rerun:
        _log.error("--experimental-rerun reads a pickle, which may execute anything; type the overrides instead.")
        return 2
    if wrong := problems(arguments.overrides):
        _log.error("%s", "\n".join(wrong))
        return 2
    if arguments.help:
        return show_help(arguments.overrides)
    try:
        wrong = [*own_files.refusals(arguments)]
    except ConfigError as error:
        wrong = [str(error)]
    if wrong:
        _log.error("%s", "\n".join(wrong))
        return 2
    with session.opened() as gathered:
        try:
            for number in (signal.SIGINT, signal.SIGTERM):
                signal.signal(number, _interrupt)  # SIGINT too: a shell script's background job starts with it ignored
            shows = arguments.cfg or arguments.info
            return run_scrubbed(gathered, full_errors) if shows else run(gathered, full_errors)
        except KeyboardInterrupt:
            return end_interrupted(gathered)


def show_help(overrides: list[str]) -> int:
    """Prints what can be chosen, or what the overrides choose; returns the exit code."""
    from msaccel.config.help import page

    try:
        print(scrubbed(page(overrides)))
    except ConfigError as error:
        _log.error("%s", error)
        return 2
    return 0


def run_scrubbed(gathered: Session, full_errors: bool) -> int:
    """Runs Hydra where it prints what it has composed, before any callback sees it."""
    printed = StringIO()
    try:
        with redirect_stdout(printed):
            return run(gathered, full_errors)
    finally:
        print(without_passwords(printed.getvalue()), end="")


def run(gathered: Session, full_errors: bool) -> int:
    """Runs Hydra; returns the exit code.

    Args:
        gathered: what Hydra's callbacks and the jobs add to.
        full_errors: raise errors as they are instead of one sentence each.
    """
    try:
        job()
    except HYDRA_ERRORS as error:
        if full_errors:
            raise
        gathered.refusals.append(sentence(error))
    except RuntimeError as error:  # submitit's
        if full_errors or gathered.submitted is None:
            raise
        if reason := submitit.settle_lost_jobs(gathered.submitted, error):
            gathered.refusals.append(reason)
        else:  # Hydra has left the sweep without calling the callback at its end
            callback.finish(SweepFolder(Path(gathered.submitted.hydra.sweep.dir)), gathered)
    except OSError as error:
        reason = of_the_disk(error)
        if full_errors or not reason:
            raise
        gathered.refusals.append(reason)
    except Exception as error:
        if full_errors or gathered.composed:
            raise
        gathered.refusals.append(sentence(error))
    if gathered.refusals:
        _log.error("\n".join(gathered.refusals))
        return 2
    return exit_code(result.status for result in gathered.results)


def end_interrupted(gathered: Session) -> int:
    """Ends jobs that other processes still train, and says how to go on; returns the exit code."""
    with suppress(KeyboardInterrupt):  # a second one does not wait for them
        if gathered.submitted is not None:
            submitit.end_jobs(gathered.submitted)
    _log.error("interrupted; what was logged until then is kept")
    if gathered.sweep:
        _log.info(RESUME_HINT)
    return 130


def exit_code(statuses: Iterable[str]) -> int:
    """The exit code for the statuses of all jobs."""
    found = set(statuses)
    if found <= {FINISHED}:
        return 0
    if KILLED in found:
        return 130
    return 2 if found <= {FINISHED, REFUSED} else 1


def _interrupt(signal_number: int, frame: FrameType | None) -> None:
    session.current().interrupted = True
    raise KeyboardInterrupt
