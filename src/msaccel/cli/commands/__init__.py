"""The commands of `python -m msaccel`, one module each: `options(parser)` declares its options, `run(options)` runs it.

`--help` imports all modules, so they import heavy packages inside `run`.
"""

from __future__ import annotations

import argparse
import math
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from msaccel.config import compose
from msaccel.errors import UserError
from msaccel.tracking.credentials import hidden, sqlite_file, without_password

COMMANDS = {
    "compare": "judge finished runs against their baselines, with intervals, plots and a page",
    "study": "train the missing runs of a study, and write the results into its card",
    "status": "list runs that are running, dead (with the command that resumes them), or ended",
    "eval": "evaluate a saved run on its test set",
    "sample": "write text with the network of a saved run",
    "ui": "open MLflow's UI on this machine and print links to the runs",
    "data": "download a data set, check or convert an image folder",
    "rank-table": "write, merge or check the rank table of Ascend servers",
    "launch-plan": "print the commands to type on each server",
    "doctor": "check which devices can be used here, and what is missing",
    "kernels": "build the operators on oneDNN, or show what computes convolutions here",
}


def is_default_store(uri: str) -> bool:
    """Whether commands use this store, as `add_tracking_uri` read it, without being told."""
    return uri == hidden(compose.chosen_uri())


def add_tracking_uri(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--tracking-uri",
        type=_store,
        default=compose.chosen_uri(),
        help="MLflow's store; MLFLOW_TRACKING_URI, or mlruns/mlflow.db of the repository",
    )


def _store(typed: str) -> str:
    if not typed:
        raise UserError("--tracking-uri= is empty; write a value, or leave it out.")
    return hidden(compose.with_absolute_file(typed))


def check_file(uri: str) -> None:
    """Refuses a store that is named and not there, which opening would make.

    Raises:
        UserError: there is no such file.
    """
    database = sqlite_file(uri)
    if database and not database.exists() and not is_default_store(uri):
        raise UserError(
            f"--tracking-uri={without_password(uri)}: there is no file {database}; write one that is there."
        )


def add_saved_run(parser: argparse.ArgumentParser) -> None:
    """The options that name a run and one of its checkpoints."""
    add_tracking_uri(parser)
    parser.add_argument("id", metavar="RUN", help="run id, as MLflow shows it")
    parser.add_argument("--checkpoint", choices=("last", "best"), default="last")


def number_from(kind: type[int] | type[float], least: float, most: float = math.inf) -> Callable[[str], float]:
    """Reads an option's number, which must be in this range."""
    wanted = "a whole number" if kind is int else "a number"
    bounds = f"from {least:,} on" if most == math.inf else f"from {least:,} to {most:,}"

    def read(given: str) -> float:
        try:
            number: float = kind(given)
        except ValueError:
            number = math.nan
        if not least <= number <= most:
            raise argparse.ArgumentTypeError(f"{given} is not {wanted} {bounds}")
        return number

    return read


def in_worker(options: argparse.Namespace, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Runs `msaccel.training.saved_run_worker` on the run that the options of `add_saved_run` name, in its environment.

    Raises:
        UserError: there is no such run, or it saved no such checkpoint.
    """
    from msaccel.launch import launcher, simulation
    from msaccel.tracking import saved_run

    compose.register()
    with tempfile.TemporaryDirectory() as folder:
        files = saved_run.fetch(options.tracking_uri, options.id, options.checkpoint, Path(folder))
        config = compose.load(files.config)
        config.device = simulation.of_saved_run(config.device)
        compose.save(config, files.config)
        environment = launcher.environment(config)
        command = [sys.executable, "-m", "msaccel.training.saved_run_worker"]
        command += [str(files.config), str(files.weights), files.digest, *arguments]
        return subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True)
