"""What happens before and after a sweep's jobs, as a callback of Hydra's.

Before: every job is checked, and an earlier start of the same sweep is resumed if `sweep.resume` asks for it.
After: the comparison of the runs is printed, and a line for each job that did not finish.
"""

from __future__ import annotations

import logging
import math
import sys
from collections.abc import Sequence
from itertools import islice
from pathlib import Path
from typing import Any, NoReturn

from hydra._internal.core_plugins.basic_sweeper import BasicSweeper
from hydra.core.global_hydra import GlobalHydra
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override, ValueType
from hydra.experimental.callback import Callback
from omegaconf import DictConfig, open_dict, read_write

from msaccel.config.bounds import bad_values
from msaccel.config.compose import composing, load, typed
from msaccel.errors import ConfigError, UserError
from msaccel.launch.job_folder import Result
from msaccel.launch.resume_changes import differences
from msaccel.schema import Config
from msaccel.sweeps import presets, search, session, submitit
from msaccel.sweeps.folder import RESUME_HINT, SweepCommand, SweepFolder, newest
from msaccel.tracking.status import FAILED, FINISHED, KILLED, REFUSED

MOST_JOBS = 10_000
_log = logging.getLogger(__name__)


class Sweep(Callback):
    """Refuses the whole sweep if any of its jobs has an unknown key, a wrong type or a value out of range."""

    def on_multirun_start(self, config: DictConfig, **kwargs: Any) -> None:
        # Hydra turns an exception in a callback into a warning and goes on, so the process ends here.
        session.current().composed = True
        try:
            jobs, reasons = checked_jobs(config)
            reasons += [*presets.refusals(config.hydra), *search.refusals(config), *submitit.refusals(config)]
            if reasons:
                _refuse("\n".join(reasons))
            folder = begin(config, jobs)
        except UserError as error:
            _refuse(str(error))
        except OSError as error:
            _refuse(f"hydra.sweep.dir={config.hydra.sweep.dir} cannot be used ({error.strerror}); write another one.")
        except Exception:
            _log.exception("the sweep could not be checked")
            sys.exit(1)
        if folder is None:
            sys.exit(0)
        session.current().sweep = folder

    def on_multirun_end(self, config: DictConfig, **kwargs: Any) -> None:
        session.current().end_if_interrupted()
        finish(SweepFolder(Path(config.hydra.sweep.dir)), session.current())


def _refuse(reason: str) -> NoReturn:
    _log.error("%s", reason)
    sys.exit(2)


def begin(config: DictConfig, jobs: list[Config]) -> SweepFolder | None:
    """Creates and locks the sweep's folder, or with `sweep.resume` the newest folder of the same command.

    Args:
        config: Hydra's composition; where an earlier sweep is resumed, `hydra.sweep.dir` becomes its folder.
        jobs: as they are composed now, by number; empty for a search.

    Returns:
        The folder; None if all jobs have finished already.

    Raises:
        UserError: the folder belongs to another sweep or process, or its jobs have changed.
        OSError: the folder cannot be made.
    """
    own, command = SweepFolder(Path(config.hydra.sweep.dir)), SweepCommand.of(config)
    record = own.record()
    if record and not (config.sweep.resume and record.command == command):
        raise UserError(
            f"hydra.sweep.dir={own.path} holds a sweep already; write the command of that with sweep.resume=true to go "
            "on with it, or another hydra.sweep.dir."
        )
    earlier = (own if record else newest(own.path.parent, command)) if config.sweep.resume else None
    if earlier is None:
        own.create(config, config.hydra.sweeper.n_trials if search.chooses(config.hydra) else len(jobs))
        if config.sweep.resume:
            _log.info("sweep %s: no sweep of this command was begun before; it begins", own.path.name)
        return own
    earlier.reopen()
    name = earlier.path.name
    if not earlier.is_unfinished():
        earlier.clear_jobs()
        _log.info("sweep %s has finished; python -m msaccel compare --sweep %s compares it", name, name)
        return None
    refuse_changed_jobs(earlier, jobs)
    _log.info("sweep %s goes on: %s", name, earlier.progress())
    quoted = str(earlier.path).replace("\\", "\\\\").replace("'", "\\'")
    config.hydra.sweep.dir = str(earlier.path)
    config.hydra.overrides.hydra.append(f"hydra.sweep.dir='{quoted}'")  # each job is composed from these
    return earlier


def refuse_changed_jobs(sweep: SweepFolder, jobs: list[Config]) -> None:
    """Compares the jobs that have started with what they would be now.

    Raises:
        UserError: defaults have changed since.
    """
    reasons: dict[str, None] = {}
    for folder in sweep.jobs():
        number = int(folder.path.name)
        if folder.is_assigned() and number < len(jobs):
            reasons.update(dict.fromkeys(differences(load(folder.config), jobs[number])[0]))
    if reasons:
        raise UserError("\n".join(reasons))


def finish(sweep: SweepFolder, current: session.Session) -> None:
    """Collects the results of all jobs, reports them, and marks the sweep finished if they all are."""
    current.results = results = sweep.results()
    finished = [result.run_id for result in results if result.status == FINISHED]
    complete = len(finished) == len(sweep.jobs()) and not current.refusals
    report(results, sweep, complete=complete)
    if best := search.best(sweep.path):
        _log.info("%s", best)
    if complete:
        sweep.finish(finished)
    elif any(result.status in (FAILED, KILLED) for result in results):
        _log.info(RESUME_HINT)
    discard_refused(sweep)


def discard_refused(sweep: SweepFolder) -> None:
    """Removes the folders of jobs that were never started; a resumed sweep checks these jobs again."""
    refused = [folder for folder in sweep.jobs() if (result := folder.result()) and result.status == REFUSED]
    for folder in refused:
        folder.discard()
    if refused and not sweep.jobs():
        sweep.files.clear()


def report(results: list[Result], sweep: SweepFolder, *, complete: bool) -> None:
    """Compares the finished runs with their baselines, and prints one line for each job that did not finish."""
    unfinished = [result for result in results if result.status != FINISHED]
    if len(unfinished) < len(results):
        try:
            compare([result for result in results if result.run_id], sweep, complete=complete)
        except Exception as error:  # the runs are safe in MLflow, and the sweep must not fail for its report
            _log.warning(
                "the report was not made (%s: %s); try python -m msaccel compare.", type(error).__name__, error
            )
    for result in unfinished:
        _log.error("%s: %s: %s", result.name, result.status, result.message)


def compare(results: list[Result], sweep: SweepFolder, *, complete: bool) -> None:
    """Prints the comparison of the jobs' runs, keeps the report with the sweep's own run and prints where it is."""
    from msaccel.compare import report, runs  # MLflow's import takes a second
    from msaccel.compare.render import terminal
    from msaccel.sweeps.parent_run import keep_report
    from msaccel.tracking.store import open_store

    uri = results[0].tracking_uri
    client = open_store(uri)
    found = [client.get_run(result.run_id) for result in results]
    answer = report.build([runs.record(run) for run in found])
    terminal.show(answer)
    record = sweep.record()
    overrides = record.command.overrides if record else []
    page = keep_report(client, answer, found, sweep.path.name, overrides, uri, complete=complete)
    _log.info("report: %s", page)


def checked_jobs(config: DictConfig) -> tuple[list[Config], list[str]]:
    """The jobs of a sweep, and a sentence for each thing that is wrong in any of them, without repetitions.

    A sweeper that chooses its jobs one after the other (optuna) has none yet; they are checked as they start.

    Raises:
        ConfigError: the values cannot be enumerated.
        OSError: the sweep's folder cannot be looked into.
    """
    folder = config.hydra.sweep.dir
    sweep = SweepFolder(Path(folder))
    if sweep.files.holds_others_files() and not sweep.record():
        return [], [f"hydra.sweep.dir={folder} holds other files; write a folder that is new or empty."]
    if search.chooses(config.hydra):
        return [], []
    loader = GlobalHydra.instance().config_loader()
    reasons: dict[str, None] = {}
    jobs: list[Config] = []
    with composing():
        overrides = OverridesParser.create(config_loader=loader).parse_overrides(list(config.hydra.overrides.task))
        if reason := not_a_number_of_jobs(overrides):
            return [], [reason]
        lines = BasicSweeper.split_arguments(overrides, max_batch_size=None)[0]
    if not lines:
        return [], ["the sweep has no jobs, since a range(...) or glob(...) in it is empty; write the values."]
    _log.info("sweep: checks its %d jobs before the first one starts", len(lines))
    for line in lines:
        try:
            with composing():
                composed = loader.load_sweep_config(config, line)
            with read_write(composed), open_dict(composed):
                del composed["hydra"]
            jobs.append(typed(composed))
            reasons.update(dict.fromkeys(bad_values(jobs[-1])))
        except ConfigError as error:
            reasons[str(error)] = None
    return jobs, list(reasons)


def not_a_number_of_jobs(overrides: Sequence[Override]) -> str:
    """A sentence if a sweep over these values has no end or more than MOST_JOBS jobs, else an empty text.

    The jobs are counted without making a list of them: `seed=range(0,1e12)` is short to type.

    Raises:
        OmegaConfBaseException, HydraException: the values cannot be enumerated.
    """
    for override in overrides:
        if override.value_type == ValueType.INTERVAL_SWEEP:
            return f"{override.input_line} is for hydra/sweeper=optuna; write single values, or range(START,STOP,STEP)."
    sizes = {
        override.key_or_group: sum(1 for _ in islice(override.sweep_iterator(), MOST_JOBS + 1))
        for override in overrides
        if override.is_sweep_override() and override.value_type != ValueType.GLOB_CHOICE_SWEEP
    }
    if math.prod(sizes.values()) <= MOST_JOBS:
        return ""
    named = " × ".join(f"{key} ({size if size <= MOST_JOBS else 'more'})" for key, size in sizes.items())
    return f"the sweep has more than {MOST_JOBS} jobs, {named}; write fewer values, or several sweeps."
