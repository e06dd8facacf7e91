"""`eval`: scores a saved run's checkpoint on the test set of its configuration."""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from pathlib import Path

from msaccel.cli.commands import add_tracking_uri


def options(parser: argparse.ArgumentParser) -> None:
    add_tracking_uri(parser)
    parser.add_argument("id", metavar="RUN", help="run id, as MLflow shows it")
    parser.add_argument("--checkpoint", choices=("last", "best"), default="last")


def run(options: argparse.Namespace) -> int:
    from msaccel.config import compose
    from msaccel.launch import launcher
    from msaccel.tracking import saved_run

    compose.register()
    with tempfile.TemporaryDirectory() as folder:
        files = saved_run.fetch(options.tracking_uri, options.id, options.checkpoint, Path(folder))
        environment = launcher.environment(compose.load(files.config))
        command = [sys.executable, "-m", "msaccel.training.eval_worker", str(files.config), str(files.weights)]
        scored = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True)
    if scored.returncode == 0:
        print(f"{options.checkpoint} checkpoint of {options.id}: {scored.stdout.strip()}")
    return scored.returncode
