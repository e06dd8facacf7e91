"""`ui`: MLflow's UI on this machine."""

from __future__ import annotations

import argparse

from msaccel.cli.commands import add_tracking_uri


def options(parser: argparse.ArgumentParser) -> None:
    add_tracking_uri(parser)
    parser.add_argument("--port", type=int, default=5000)


def run(options: argparse.Namespace) -> int:
    from msaccel.tracking.ui import serve

    return serve(options.tracking_uri, options.port)
