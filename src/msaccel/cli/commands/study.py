"""`study`: trains the missing runs of studies, and writes the results into their cards."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from msaccel.cli.commands import add_tracking_uri, number_from
from msaccel.config import compose
from msaccel.config.overrides import keys_set_by, problems
from msaccel.errors import ConfigError

if TYPE_CHECKING:
    from msaccel.study.protocol import Study

ALL = "all"


def options(parser: argparse.ArgumentParser) -> None:
    add_tracking_uri(parser)
    parser.add_argument(
        "words",
        nargs="*",
        metavar="STUDY | KEY=VALUE",
        help="names of folders in experiments/, or all; with overrides for all jobs, the results are only printed",
    )
    instead = parser.add_mutually_exclusive_group()
    instead.add_argument(
        "--dry-run", action="store_true", help="print the jobs by arm and rate, how many are done, and the hours left"
    )
    instead.add_argument("--no-training", action="store_true", help="write the cards from the runs in MLflow")
    instead.add_argument(
        "--check", action="store_true", help="train some of the published runs again, and compare them"
    )
    parser.add_argument(
        "--published",
        action="store_true",
        help="count the published runs as done, to go on where another machine ended",
    )
    parser.add_argument(
        "--jobs", type=number_from(int, 1), help="with --check: how many runs of each study (default: 3)"
    )
    parser.add_argument(
        "--choice", type=number_from(int, 0), help="with --check: the seed by which they are chosen (default: 0)"
    )
    parser.add_argument(
        "--into",
        type=Path,
        help="also write the answers into this README, and into docs/answer.md and docs/studies.html beside it",
    )


def run(options: argparse.Namespace) -> int:
    from msaccel.compare.tuning import RATE
    from msaccel.study import cards, protocol_file, published
    from msaccel.study.group_runs import keep_groups
    from msaccel.study.jobs import SEED, check_conditions
    from msaccel.study.plan import plan
    from msaccel.study.runner import StudyRunner
    from msaccel.tracking.store import open_store

    compose.register()
    overrides = [word for word in options.words if "=" in word]
    if wrong := problems(overrides):
        raise ConfigError("\n".join(wrong))
    if declared := sorted({RATE, SEED} & {*keys_set_by(overrides)}):
        raise ConfigError(f"{declared[0]} is declared in study.yaml for every job; write rates or seeds there.")
    if "tracking.experiment" in keys_set_by(overrides):
        raise ConfigError(
            "tracking.experiment is the study's name; leave it out, and write --tracking-uri for a store."
        )
    if "tracking.uri" in keys_set_by(overrides):
        raise ConfigError("tracking.uri is one for all jobs of a study; write --tracking-uri, or MLFLOW_TRACKING_URI.")
    if options.check and (overrides or options.into):
        raise ConfigError(
            f"--check trains runs as they were published; leave out {'--into' if options.into else overrides[0]}."
        )
    if not options.check and (options.jobs, options.choice) != (None, None):
        raise ConfigError("--jobs and --choice say what --check trains; write --check, or leave them out.")
    if options.dry_run and options.into:
        raise ConfigError("--dry-run writes nothing; leave out --into, or write --no-training in its place.")
    if overrides and options.into:
        raise ConfigError(f"--into publishes the studies as they are declared; leave out {overrides[0]}, or --into.")
    if options.published and (overrides or options.check):
        other = overrides[0] if overrides else "--check"
        raise ConfigError(f"--published counts runs of the studies as they are declared; leave out {other}, or it.")
    requested = list(dict.fromkeys(word for word in options.words if "=" not in word))
    if not requested and not options.check:
        raise ConfigError(f"which study is meant? Write one of {', '.join(protocol_file.names())}, or {ALL}.")
    studies = [protocol_file.load(name) for name in (protocol_file.names() if requested in ([], [ALL]) else requested)]
    if options.check:
        return check(studies if requested else [one for one in studies if published.is_published(one)], options)
    for study in studies:
        check_conditions(study, overrides)
    client = open_store(options.tracking_uri)
    runners = [
        StudyRunner(
            study, client, options.tracking_uri, overrides, published.records(study) if options.published else ()
        )
        for study in studies
    ]
    if options.dry_run:
        plans = [plan(runner) for runner in runners]
        print(*(line for lines, _ in plans for line in lines), sep="\n")
        hours = sum(hours for _, hours in plans)
        print(f"about {hours:.1f} hours in all; more where a grid of rates grows, fewer where a look decides")
        return 0
    for runner in runners:
        if not options.no_training:
            runner.run()
            keep_groups(runner)
        if runner.runs.any_finished or not options.into:
            print(cards.write(runner))
        elif records := published.records(runner.study):
            runner.published = records
            runner.refresh()
            print(f"{runner.study.name}: no finished run in this store, so its answers are those of its published runs")
        else:
            print(f"{runner.study.name}: not trained yet")
    if options.into:
        print(cards.write_overview(runners, options.into))
    return 0


def check(studies: Sequence[Study], options: argparse.Namespace) -> int:
    """Checks the published runs of studies; returns the exit code."""
    from msaccel.study import published

    if not studies:
        raise ConfigError("no study has published runs yet; train one, for example python -m msaccel study clipping.")
    return 0 if all([published.check(study, options.jobs or 3, options.choice or 0) for study in studies]) else 1
