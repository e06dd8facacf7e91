"""`status`: runs that are running, dead or ended, and the commands that resume them."""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING

from msaccel.cli.commands import add_tracking_uri, check_file, is_default_store, number_from
from msaccel.tracking.progress_bar import span

if TYPE_CHECKING:
    from msaccel.sweeps.status import RunStatus

_NONE = "–"


def options(parser: argparse.ArgumentParser) -> None:
    add_tracking_uri(parser)
    parser.add_argument("--experiment", help="only runs of this experiment, for example lenet-mnist")
    parser.add_argument(
        "--recent", type=number_from(int, 0), default=10, metavar="N", help="how many ended runs to show (default 10)"
    )
    parser.add_argument("--json", action="store_true", help="print all details as JSON")


def run(options: argparse.Namespace) -> int:
    from msaccel.sweeps import status
    from msaccel.tracking.store import check_experiment, open_store

    check_file(options.tracking_uri)
    client = open_store(options.tracking_uri)
    if options.experiment:
        check_experiment(client, options.experiment)
    found = status.find(client, options.experiment, options.recent)
    if not is_default_store(options.tracking_uri):
        found = [one.in_store(options.tracking_uri) for one in found]
    if options.json:
        print(json.dumps([asdict(one) for one in found], indent=2))
        return 0
    running = [one for one in found if one.status == status.RUNNING]
    dead = [one for one in found if one.status == status.DEAD]
    show(running, dead, [one for one in found if one.status not in (status.RUNNING, status.DEAD)])
    return 0


def show(running: Sequence[RunStatus], dead: Sequence[RunStatus], ended: Sequence[RunStatus]) -> None:
    """Prints a table for each status, and below it the commands that resume its runs."""
    from rich.console import Console

    from msaccel.compare.render.fitted import show_rows, show_text

    console = Console(highlight=False, markup=False, emoji=False)
    now = time.time()
    tables = (
        ("running", running, (*_NAMES, *_PROGRESS, *_PACE, ("since", lambda one: ago(now - one.started)))),
        (
            "dead: killed, or their machine cannot be reached",
            dead,
            (*_NAMES, *_PROGRESS, ("last sign", lambda o: ago(now - o.heard))),
        ),
        ("ended", ended, (*_NAMES, *_OUTCOME, ("ended", lambda one: ago(now - (one.ended or one.heard))))),
    )
    for title, runs, columns in tables:
        if runs:
            rows = [(one.name, [text(one) for _, text in columns]) for one in runs]
            show_rows(console, title, [head for head, _ in columns], rows)
            for command in dict.fromkeys(one.go_on for one in runs if one.go_on):
                show_text(console, f"resume: {command}", "  ", "    ")
    if not (running or dead or ended):
        console.print("no runs; python run.py trains one")
    elif not running:
        console.print("nothing is running")


Column = tuple[str, Callable[["RunStatus"], str]]

_NAMES: tuple[Column, ...] = (
    ("run", lambda one: one.name),
    ("id", lambda one: one.run_id),
    ("experiment", lambda one: one.experiment),
)
_PROGRESS: tuple[Column, ...] = (
    ("update", lambda one: f"{number(one.update)} of {number(one.updates)}"),
    ("accuracy", lambda one: _NONE if one.accuracy is None else f"{one.accuracy:.2%}"),
)
_PACE: tuple[Column, ...] = (
    ("samples/s", lambda one: number(one.samples_per_sec)),
    ("training left", lambda one: _NONE if one.seconds_left is None else span(one.seconds_left)),
)
_OUTCOME: tuple[Column, ...] = (
    ("status", lambda one: one.status),
    ("accuracy", lambda one: _NONE if one.accuracy is None else f"{one.accuracy:.2%}"),
    ("took", lambda one: _NONE if one.ended is None else span(one.ended - one.started)),
)


def number(value: float | None) -> str:
    return _NONE if value is None else f"{value:,.0f}"


def ago(seconds: float) -> str:
    return f"{span(seconds)} ago"
