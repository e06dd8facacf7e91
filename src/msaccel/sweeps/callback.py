"""What frames a sweep: all jobs are checked before the first one starts, what an earlier start of it has done is taken
up, and the last lines say how each job ended."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from hydra._internal.core_plugins.basic_sweeper import BasicSweeper
from hydra.core.global_hydra import GlobalHydra
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.experimental.callback import Callback
from omegaconf import DictConfig, open_dict, read_write

from msaccel.cli import run
from msaccel.config.compose import load, typed
from msaccel.config.messages import HYDRA_ERRORS, sentence
from msaccel.config.ranges import bad_values
from msaccel.errors import ConfigError, UserError
from msaccel.launch.job_folder import JobFolder, Result
from msaccel.launch.resume_changes import differences
from msaccel.schema import Config
from msaccel.sweeps import folder as same_sweep
from msaccel.sweeps import search, size, submitit
from msaccel.sweeps.folder import Command, SweepFolder, newest
from msaccel.tracking.status import FAILED, FINISHED, KILLED


class Sweep(Callback):
    """Refuses the whole sweep when a job of it holds an unknown key, a wrong type or a value out of range."""

    def on_multirun_start(self, config: DictConfig, **kwargs: Any) -> None:
        # Hydra turns an exception in a callback into a warning, so the process ends here.
        jobs, found = checked_jobs(config)
        found += [*search.refusals(config), *submitit.refusals(config)]
        if found:
            print("\n".join(found), file=sys.stderr)
            sys.exit(2)
        try:
            goes_on = begin(config, jobs)
        except UserError as error:
            print(error, file=sys.stderr)
            sys.exit(2)
        except OSError as error:
            where = config.hydra.sweep.dir
            print(f"hydra.sweep.dir={where} cannot be used ({error.strerror}); write another one.", file=sys.stderr)
            sys.exit(2)
        if not goes_on:
            sys.exit(0)

    def on_multirun_end(self, config: DictConfig, **kwargs: Any) -> None:
        sweep = SweepFolder(Path(config.hydra.sweep.dir))
        run.results[:] = sweep.results()
        report(run.results)
        if best := search.best(sweep.path):
            print(best, flush=True)
        finished = [result.run_id for result in run.results if result.status == FINISHED]
        if len(finished) == len(sweep.jobs()) and not run.refused:
            sweep.finish(finished)
        elif any(result.status in (FAILED, KILLED) for result in run.results):
            print(same_sweep.HOW_TO_GO_ON, flush=True)


def begin(config: DictConfig, jobs: list[Config]) -> bool:
    """Makes the folder of the sweep this process's: a new one, or with `sweep.resume` the newest of the same command.

    Args:
        jobs: as they are composed now, by their numbers; none of a search.

    Returns:
        Whether anything is left to do.

    Raises:
        UserError: the folder is that of another sweep or process, or its jobs would not be what they were.
        OSError: the folder cannot be made.
    """
    own, command = SweepFolder(Path(config.hydra.sweep.dir)), Command.of(config)
    kept = own.kept()
    if kept and not (config.sweep.resume and kept.command == command):
        raise UserError(
            f"hydra.sweep.dir={own.path} holds a sweep already; write the command of that with sweep.resume=true to go "
            "on with it, or another hydra.sweep.dir."
        )
    found = (own if kept else newest(own.path.parent, command)) if config.sweep.resume else None
    if found is None:
        own.begin(config)
        if config.sweep.resume:
            print(f"sweep {own.path.name}: no sweep of this command was begun before; it begins", flush=True)
        return True
    found.again()
    if not found.goes_on():
        found.empty()
        print(f"sweep {found.path.name} has finished; python -m msaccel compare --sweep {found.path.name} compares it")
        return False
    must_be_the_same(found, jobs)
    print(f"sweep {found.path.name} goes on: {found.state()}", flush=True)
    quoted = str(found.path).replace("\\", "\\\\").replace("'", "\\'")
    config.hydra.sweep.dir = str(found.path)
    config.hydra.overrides.hydra.append(f"hydra.sweep.dir='{quoted}'")  # from which each job is composed
    return True


def must_be_the_same(sweep: SweepFolder, jobs: list[Config]) -> None:
    """Compares the jobs that were begun with what they would be now.

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


def report(ended: list[Result]) -> None:
    """The finished runs against their baselines, and one line for each job that did not finish."""
    finished = [result for result in ended if result.status == FINISHED]
    if finished:
        try:
            compare([result for result in ended if result.run_id])
        except Exception as error:  # the runs are safe in MLflow, and the sweep must not fail for its report
            print(
                f"the report was not made ({type(error).__name__}: {error}); try python -m msaccel compare.",
                file=sys.stderr,
            )
    for result in ended:
        if result.status != FINISHED:
            print(f"{result.name}: {result.status}: {result.message}", file=sys.stderr)


def compare(ended: list[Result]) -> None:
    """Prints the comparison of the jobs' runs, stores the report in MLflow and prints where it is."""
    from msaccel.compare import report, runs  # MLflow's import takes a second
    from msaccel.compare.render import terminal, write
    from msaccel.tracking.store import open_store

    uri = ended[0].tracking_uri
    client = open_store(uri)
    answer = report.build([runs.record(client.get_run(result.run_id)) for result in ended])
    terminal.show(answer)
    sweep = answer.runs[0].tags.get("sweep_id", "")
    print(f"report: {write.write_and_store(client, answer, uri, f'sweep {sweep}'.strip())}", flush=True)


def checked_jobs(config: DictConfig) -> tuple[list[Config], list[str]]:
    """The jobs of a sweep, and a sentence for each thing that is wrong in any of them, each once.

    Sweepers that choose their jobs as they go (optuna) name ranges instead of jobs; their jobs are checked one by one
    as they start.
    """
    folder = config.hydra.sweep.dir
    if JobFolder(Path(folder)).holds_others_files():
        return [], [f"hydra.sweep.dir={folder} holds other files; write a folder that is new or empty."]
    if search.chooses(config.hydra):
        return [], []
    loader = GlobalHydra.instance().config_loader()
    found: dict[str, None] = {}
    right: list[Config] = []
    try:
        overrides = OverridesParser.create(config_loader=loader).parse_overrides(list(config.hydra.overrides.task))
        if too_many := size.refusals(overrides):
            return [], too_many
        jobs = BasicSweeper.split_arguments(overrides, max_batch_size=None)[0]
    except HYDRA_ERRORS as error:
        return [], [sentence(error)]
    for job in jobs:
        try:
            composed = loader.load_sweep_config(config, job)
            with read_write(composed), open_dict(composed):
                del composed["hydra"]
            right.append(typed(composed))
            found.update(dict.fromkeys(bad_values(right[-1])))
        except ConfigError as error:
            found[str(error)] = None
        except HYDRA_ERRORS as error:
            found[sentence(error)] = None
    return right, list(found)
