"""`python run.py`: Hydra's entry, with every error of the user's in one sentence and the exit code set here.

Exit codes: 0 all jobs finished, 1 a job failed, 2 something was refused before it started, 130 interrupted.
"""

from __future__ import annotations

import os
import re
import signal
import sys
from pathlib import Path
from types import FrameType

import hydra
from filelock import BaseFileLock
from hydra.core.hydra_config import HydraConfig
from hydra.types import RunMode
from omegaconf import DictConfig

from msaccel.config import compose
from msaccel.config.derived import run_name
from msaccel.config.messages import HYDRA_ERRORS, sentence
from msaccel.config.ranges import bad_values
from msaccel.errors import ConfigError, UserError, of_the_disk, on_one_line
from msaccel.files import CONF
from msaccel.launch import launcher, log
from msaccel.launch.job_folder import JobFolder, Result, Task
from msaccel.schema import Config
from msaccel.sweeps import folder as same_sweep
from msaccel.sweeps import presets, search, submitit
from msaccel.tracking.credentials import hidden_in
from msaccel.tracking.status import FINISHED, KILLED, REFUSED

results: list[Result] = []
refused: list[str] = []


@hydra.main(version_base="1.3", config_path=str(CONF), config_name="config")
def job(composed: DictConfig) -> float | None:
    """One job of Hydra's: checked, then trained in processes of its own.

    Returns:
        What a sweeper that chooses its jobs goes by: the validation accuracy, 0 of a job that did not finish; None in
        any other sweep.
    """
    context = HydraConfig.get()
    log.set_up(debug=log.wants_debug(context.verbose))
    folder = JobFolder(Path(context.runtime.output_dir))
    sweep = context.mode == RunMode.MULTIRUN
    if not sweep and folder.holds_others_files():
        refused.append(f"hydra.run.dir={folder.path} holds other files; write a folder that is new or empty.")
        return None
    elsewhere = sweep and "basic_launcher" not in context.launcher["_target_"]  # in a process beside other jobs'
    if "Joblib" in context.launcher["_target_"]:
        presets.end_with_sweep()
    try:
        config = compose.typed(composed)
        if bad := bad_values(config):
            raise ConfigError("\n".join(bad))
        if sweep and config.resume:
            raise ConfigError(f"resume={config.resume} goes on with a single run; leave out -m.")
        if config.sweep.resume and not sweep:
            raise ConfigError("sweep.resume=true goes on with a sweep; write -m, or resume=latest for a single run.")
    except ConfigError as error:
        if elsewhere:
            folder.finish(Result(f"job {context.job.num}", REFUSED, message=str(error)))
            return 0.0
        refused.append(str(error))  # Hydra would print lines of its own about an exception
        folder.clear()
        return 0.0
    overrides = list(context.overrides.task)
    if config.resume:
        if not config.device.server_rank:
            folder.clear()  # the run has one
        results.append(resume(config, overrides, folder))
        return None
    sweep_id, searched = Path(context.sweep.dir).name if sweep else "", search.chooses(context)
    if sweep and not same_sweep.SweepFolder(Path(context.sweep.dir)).goes_on():
        folder.clear()  # a job of a launcher's that outlived its sweep, which another start has brought to its end
        return 0.0
    task = Task(run_name(config), overrides, sweep_id, quiet=elsewhere)
    config.sweep.resume = False  # it has chosen the folder, and is no setting of the run
    try:
        lock = when_free(folder, task.name)
        result = launcher.run_in_sweep(config, folder, task, searched) if sweep else launcher.run(config, folder, task)
        lock.release()
    except KeyboardInterrupt:
        if not submitit.was_interrupted():
            raise
        result = submitit.interrupted(folder, run_name(config))
    if not sweep:  # a sweep collects the results of its jobs at its end, from their folders
        results.append(result)
        if result.status == FINISHED:
            folder.clear()
    return search.objective(result) if searched else None


def when_free(folder: JobFolder, name: str) -> BaseFileLock:
    """The lock of a job's folder, once no launcher of an earlier start of its sweep is at work there."""
    try:
        return folder.lock("launcher")
    except UserError:
        print(f"{name}: an earlier start of the sweep still trains it in another process, and is waited for")
        return folder.lock("launcher", wait=True)


def resume(config: Config, overrides: list[str], own_folder: JobFolder) -> Result:
    """Goes on with a run; REFUSED, without touching it, if that cannot be."""
    from msaccel.launch.resume import find  # MLflow's import takes a second

    try:
        found = find(config, overrides, own_folder)
        folder = found.folder
        lock = folder.lock("launcher")
        if others := folder.ranks_here():
            raise UserError(
                f"resume={found.task.resume} is still trained by {others}; wait a few seconds if it is about to end, "
                "or end it."
            )
    except UserError as error:
        refused.append(str(error))
        return Result("", REFUSED, message=str(error))
    result = launcher.run(found.config, folder, found.task)
    lock.release()
    if result.status == FINISHED and not same_sweep.SweepFolder(folder.path.parent).goes_on():
        folder.clear()  # in a sweep it says that this job is done
    return result


def main() -> int:
    """Runs what the command line says; returns the exit code."""
    log.set_up()
    full_errors = os.environ.get("HYDRA_FULL_ERROR") == "1"
    os.environ["MSACCEL_TRACEBACK"] = "1" if full_errors else ""  # for the workers
    os.environ["HYDRA_FULL_ERROR"] = "1"  # Hydra then raises what it would print, and the sentence is made here
    compose.register()
    presets.register()
    sys.argv[1:] = hidden_in(readable(sys.argv[1:]))  # before Hydra writes them down
    if long := next((argument for argument in sys.argv if re.search(r"\d{4000}", argument)), None):
        print(
            f"{on_one_line(long)} holds a number that nothing here is as large as; write a smaller one.",
            file=sys.stderr,
        )
        return 2  # Hydra would end with Python's own refusal to read it
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, _interrupt)  # SIGINT too: a shell script's background job starts with it ignored
    try:
        job()
    except HYDRA_ERRORS as error:
        if full_errors:
            raise
        refused.append(sentence(error))
    except RuntimeError as error:  # submitit's
        if full_errors or not submitit.sweeps:
            raise
        if said := submitit.after_loss(error):
            refused.append(said)
        else:
            report_sweep(submitit.sweeps[0])
    except OSError as error:
        said = of_the_disk(error)
        if full_errors or not said:
            raise
        refused.append(said)
    except KeyboardInterrupt:
        submitit.end_all()
        print("interrupted; what was logged until then is kept", file=sys.stderr)
        if same_sweep.held:
            print(same_sweep.HOW_TO_GO_ON)
        return 130
    if refused:
        print("\n".join(refused), file=sys.stderr)
        return 2
    return exit_code(results)


def report_sweep(config: DictConfig) -> None:
    """The end of a sweep that Hydra has left with an error."""
    from msaccel.sweeps.callback import Sweep  # which reads `results` of this module

    Sweep().on_multirun_end(config)


def readable(arguments: list[str]) -> list[str]:
    """The arguments as Hydra can read them: it knows -m only before the first override."""
    return sorted(compose.quoted(arguments), key=lambda argument: argument not in ("-m", "--multirun"))


def exit_code(ended: list[Result]) -> int:
    statuses = {result.status for result in ended}
    if statuses <= {FINISHED}:
        return 0
    if KILLED in statuses:
        return 130
    return 2 if statuses <= {FINISHED, REFUSED} else 1


def _interrupt(signal_number: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt
