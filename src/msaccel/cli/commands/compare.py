"""`compare`: finished runs against their baselines, in the terminal and as a report."""

from __future__ import annotations

import argparse
import logging
from pathlib import Path

from msaccel.cli.commands import add_tracking_uri, check_file, is_default_store
from msaccel.config.overrides import override
from msaccel.errors import UserError, on_one_line, printable

_log = logging.getLogger(__name__)


def options(parser: argparse.ArgumentParser) -> None:
    add_tracking_uri(parser)
    parser.add_argument("--experiment", help="only runs of this experiment, for example lenet-mnist")
    parser.add_argument("--sweep", help="only runs with this sweep_id")
    parser.add_argument("--tag", action="append", default=[], metavar="KEY=VALUE", help="only runs with this tag")
    parser.add_argument(
        "--tune", metavar="KEY", help="compare each method at its best value of this key, by validation: optimizer.lr"
    )
    parser.add_argument("--paired", action="store_true", help="pair runs by seed, where there are five on both sides")
    parser.add_argument(
        "--margin",
        type=float,
        metavar="POINTS",
        help="the difference in points of accuracy that is too small to matter",
    )
    parser.add_argument(
        "--output", type=Path, metavar="FOLDER", help="write report.html, .md, .json and .csv, and store them in MLflow"
    )
    parser.add_argument("--into", type=Path, help="also write the tables into this Markdown file, between its markers")


def run(options: argparse.Namespace) -> int:
    from mlflow.exceptions import MlflowException

    from msaccel.compare import report, runs
    from msaccel.compare.render import card, terminal, write
    from msaccel.tracking.status import IN_TURNS
    from msaccel.tracking.store import check_experiment, open_store

    if options.margin is not None and not 0 < options.margin <= 100:
        raise UserError(f"--margin={options.margin:g} is no difference of accuracies; write points, such as 0.2.")
    check_file(options.tracking_uri)
    client = open_store(options.tracking_uri)
    if options.experiment:
        check_experiment(client, options.experiment)
    every = runs.find(client, options.experiment, options.sweep, options.tag)
    found = [run for run in every if IN_TURNS not in run.tags]  # a study's rounds of speed end without an accuracy
    margin = options.margin and options.margin / 100
    store = [] if is_default_store(options.tracking_uri) else [override("tracking.uri", options.tracking_uri)]
    answer = report.build(found, options.tune, options.paired, margin, store=store)
    terminal.show(answer)
    if options.into:
        card.write_into(options.into, card.text(client, answer))
    if options.output:
        page = write.write(client, answer, options.output)
        filters = [options.experiment, options.sweep, *options.tag, options.tune and f"tuned {options.tune}"]
        name = " ".join(word for word in filters if word) or "all runs"
        print(printable(f"report: {page}"))
        try:
            stored = write.store(client, answer, options.output, options.tracking_uri, name)
        except (MlflowException, UserError) as error:
            _log.warning("MLflow has not taken the report (%s); it is in %s alone.", on_one_line(str(error), 200), page)
        else:
            print(printable(f"  and in MLflow: {stored}"))
    return 0
