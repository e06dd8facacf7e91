"""What frames a sweep: all jobs are checked before the first one starts, and the last lines say how each ended."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from hydra._internal.core_plugins.basic_sweeper import BasicSweeper
from hydra.core.global_hydra import GlobalHydra
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.experimental.callback import Callback
from omegaconf import DictConfig, open_dict, read_write

from msaccel import cli, search, sweepsize
from msaccel.checks import bad_values
from msaccel.compose import typed
from msaccel.errors import ConfigError
from msaccel.jobfolder import FINISHED, JobFolder, Result
from msaccel.sentences import HYDRA_ERRORS, sentence


class Sweep(Callback):
    """Refuses the whole sweep when a job of it holds an unknown key, a wrong type or a value out of range."""

    def on_multirun_start(self, config: DictConfig, **kwargs: Any) -> None:
        if JobFolder(Path(config.hydra.sweep.dir)).holds_others_files():
            print(
                f"hydra.sweep.dir={config.hydra.sweep.dir} holds other files; write a folder that is new or empty.",
                file=sys.stderr,
            )
            sys.exit(2)
        found = [*bad_jobs(config), *search.refusals(config)]
        if found:
            # Hydra turns an exception in a callback into a warning, so the process ends here.
            print("\n".join(found), file=sys.stderr)
            sys.exit(2)

    def on_multirun_end(self, config: DictConfig, **kwargs: Any) -> None:
        sweep = Path(config.hydra.sweep.dir)
        ended = [JobFolder(path).result() for path in _job_folders(sweep)]
        cli.results[:] = [result for result in ended if result]
        report(cli.results)
        if best := search.best(sweep):
            print(best, flush=True)
        if all(result.status == FINISHED for result in cli.results):
            JobFolder(sweep).clear()


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
    from msaccel.compare import collect, report, terminal, written  # MLflow's import takes a second
    from msaccel.tracking.store import open_store

    uri = ended[0].tracking_uri
    client = open_store(uri)
    answer = report.build([collect.record(client.get_run(result.run_id)) for result in ended])
    terminal.show(answer)
    sweep = answer.runs[0].tags.get("sweep_id", "")
    print(f"report: {written.write_and_store(client, answer, uri, f'sweep {sweep}'.strip())}", flush=True)


def bad_jobs(config: DictConfig) -> list[str]:
    """A sentence for each thing that is wrong in any job of the sweep, each once.

    Sweepers that choose their jobs as they go (optuna) name ranges instead of jobs; their jobs are checked one by one
    as they start.
    """
    if search.chooses(config.hydra):
        return []
    loader = GlobalHydra.instance().config_loader()
    found: dict[str, None] = {}
    try:
        overrides = OverridesParser.create(config_loader=loader).parse_overrides(list(config.hydra.overrides.task))
        if too_many := sweepsize.refusals(overrides):
            return too_many
        jobs = BasicSweeper.split_arguments(overrides, max_batch_size=None)[0]
    except HYDRA_ERRORS as error:
        return [sentence(error)]
    for job in jobs:
        try:
            composed = loader.load_sweep_config(config, job)
            with read_write(composed), open_dict(composed):
                del composed["hydra"]
            found.update(dict.fromkeys(bad_values(typed(composed))))
        except ConfigError as error:
            found[str(error)] = None
        except HYDRA_ERRORS as error:
            found[sentence(error)] = None
    return list(found)


def _job_folders(sweep: Path) -> list[Path]:
    numbered = [path for path in sweep.iterdir() if path.is_dir() and path.name.isdigit()]
    return sorted(numbered, key=lambda path: int(path.name))
