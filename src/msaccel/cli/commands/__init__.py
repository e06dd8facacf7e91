"""The commands of `python -m msaccel`, one module each: `options(parser)` declares them, `run(options)` does it.

The modules are all imported for `--help`, so they import what is heavy inside `run`.
"""

from __future__ import annotations

import argparse

from msaccel.config import compose
from msaccel.tracking.credentials import hidden

COMMANDS = {
    "compare": "judge finished runs against their baselines, with intervals, plots and a page",
    "study": "train what is missing of a study, and write what it found into its card",
    "status": "say what runs, what was killed and can be resumed, and what ended lately",
    "eval": "evaluate a saved run on its test set",
    "ui": "open MLflow's UI on this machine and print links to the runs",
    "data": "fetch a data set, check or convert an image folder",
    "rank-table": "write, merge or check the rank table of Ascend servers",
    "launch-plan": "print what to type on each server",
    "doctor": "say which devices can be used here, and what is missing",
    "kernels": "build the operators on oneDNN, or say what computes convolutions here",
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
