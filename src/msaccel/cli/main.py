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

from hydra._internal.utils import get_args_parser

from msaccel.cli.output import guarded
from msaccel.cli.run import job
from msaccel.config import compose, own_files
from msaccel.config.messages import HYDRA_ERRORS, sentence, without_passwords
from msaccel.config.overrides import problems
from msaccel.errors import ConfigError, of_the_disk
from msaccel.launch import log
from msaccel.sweeps import joblib, presets, session, submitit
from msaccel.sweeps.finish import finish
from msaccel.sweeps.folder import RESUME_HINT, SweepFolder
from msaccel.sweeps.session import Session
from msaccel.tracking.credentials import scrubbed
from msaccel.tracking.status import FINISHED, KILLED, REFUSED

_log = logging.getLogger(__name__)


def main() -> int:
    """Runs the command line; returns the exit code."""
    return guarded(run_command)


def run_command() -> int:
    """What `main` does, as long as its output can be written."""
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
            finish(SweepFolder(Path(gathered.submitted.hydra.sweep.dir)), gathered)
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
    """Ends jobs that other processes still train, and prints how to resume; returns the exit code."""
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
    gathered = session.current()
    first, gathered.interrupted = not gathered.interrupted, True
    if first and gathered.sweep:
        joblib.end_jobs(gathered.sweep)
    raise KeyboardInterrupt
