"""Train what is missing of a study, and write what it found into its card."""

from __future__ import annotations

import argparse
from pathlib import Path

from msaccel.cli.commands import add_tracking_uri

ALL = "all"


def options(parser: argparse.ArgumentParser) -> None:
    add_tracking_uri(parser)
    parser.add_argument(
        "words",
        nargs="+",
        metavar="STUDY | KEY=VALUE",
        help="studies by the name of their folder in experiments/, or all; overrides for all their jobs, whose results "
        "are then printed and not written into a card",
    )
    parser.add_argument("--dry-run", action="store_true", help="print what would be trained, and the minutes")
    parser.add_argument("--no-training", action="store_true", help="write the cards from what MLflow has")
    parser.add_argument("--into", type=Path, help="also write the table over these studies into this Markdown file")


def run(options: argparse.Namespace) -> int:
    from msaccel.config import compose
    from msaccel.study import cards, protocol
    from msaccel.study.driver import Driver
    from msaccel.tracking.store import open_store

    compose.register()
    overrides = [word for word in options.words if "=" in word]
    asked = [word for word in options.words if "=" not in word]
    studies = [protocol.load(name) for name in (protocol.names() if asked in ([], [ALL]) else asked)]
    client = open_store(options.tracking_uri)
    drivers = [Driver(study, client, options.tracking_uri, overrides) for study in studies]
    if options.dry_run:
        print(f"# about {sum([driver.plan() for driver in drivers]):.0f} minutes in all")
        return 0
    if not options.no_training:
        for driver in drivers:
            driver.run()
    for driver in drivers:  # not sooner: a card that changed would mark the commit of the next study's runs as dirty
        cards.write(driver)
    if options.into:
        cards.write_overview(drivers, options.into)
    return 0
