"""A saved run's checkpoint, scored on the test set of its configuration."""

from __future__ import annotations

import argparse

from msaccel.commands import add_tracking_uri


def options(parser: argparse.ArgumentParser) -> None:
    add_tracking_uri(parser)
    parser.add_argument("id", metavar="RUN", help="run id, as MLflow shows it")
    parser.add_argument("--checkpoint", choices=("last", "best"), default="last")


def run(options: argparse.Namespace) -> int:
    from msaccel.saved import evaluate_run

    score = evaluate_run(options.tracking_uri, options.id, options.checkpoint)
    print(f"{options.checkpoint} checkpoint of {options.id}: accuracy {score.accuracy:.4%}, loss {score.loss:.6f}")
    return 0
