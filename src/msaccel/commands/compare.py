"""Finished runs side by side, in the terminal and in the Markdown of a study."""

from __future__ import annotations

import argparse
from pathlib import Path

from msaccel.commands import add_tracking_uri
from msaccel.errors import UserError


def options(parser: argparse.ArgumentParser) -> None:
    add_tracking_uri(parser)
    parser.add_argument("--experiment", help="only runs of this experiment, for example lenet-mnist")
    parser.add_argument("--sweep", help="only runs with this sweep_id")
    parser.add_argument("--into", type=Path, help="also write the table into this Markdown file, between its markers")


def run(options: argparse.Namespace) -> int:
    from msaccel.compare import card, collect, summary
    from msaccel.tracking.store import open_store

    client = open_store(options.tracking_uri)
    groups = collect.group(collect.find(client, options.experiment, options.sweep))
    if not groups:
        raise UserError("there is no finished run to compare; train one first: python run.py.")
    summary.show(groups)
    if options.into:
        card.write_into(options.into, f"{card.markdown(groups)}\n\n{card.provenance(client, groups)}")
    return 0
