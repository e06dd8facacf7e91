"""`eval`: scores a saved run's checkpoint on the test set of its configuration."""

from __future__ import annotations

import argparse

from msaccel.cli.commands import add_saved_run, in_worker


def options(parser: argparse.ArgumentParser) -> None:
    add_saved_run(parser)


def run(options: argparse.Namespace) -> int:
    scored = in_worker(options)
    if scored.returncode == 0:
        print(f"{options.checkpoint} checkpoint of {options.id}: {scored.stdout.strip()}")
    return scored.returncode
