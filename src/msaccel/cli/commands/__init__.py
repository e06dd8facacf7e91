"""The commands of `python -m msaccel`, one module each: `options(parser)` declares its options, `run(options)` runs it.

`--help` imports all modules, so they import heavy packages inside `run`.
"""

from __future__ import annotations

import argparse

from msaccel.config import compose
from msaccel.tracking.credentials import hidden

COMMANDS = {
    "compare": "judge finished runs against their baselines, with intervals, plots and a page",
    "study": "train the missing runs of a study, and write the results into its card",
    "status": "list runs that are running, dead (with the command that resumes them), or ended",
    "eval": "evaluate a saved run on its test set",
    "ui": "open MLflow's UI on this machine and print links to the runs",
    "data": "download a data set, check or convert an image folder",
    "rank-table": "write, merge or check the rank table of Ascend servers",
    "launch-plan": "print the commands to type on each server",
    "doctor": "check which devices can be used here, and what is missing",
    "kernels": "build the operators on oneDNN, or show what computes convolutions here",
}


def default_tracking_uri() -> str:
    return compose.chosen_uri(compose.default_uri())


def add_tracking_uri(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--tracking-uri",
        type=hidden,
        default=default_tracking_uri(),
        help="MLflow's store; MLFLOW_TRACKING_URI, or mlruns/mlflow.db of the repository",
    )
