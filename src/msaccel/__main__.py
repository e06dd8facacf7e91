"""`python -m msaccel`: what is not training."""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

from msaccel import compose
from msaccel.errors import UserError


def main(arguments: list[str] | None = None) -> int:
    """Runs one command; returns the exit code: 0, or 2 when it was refused with a sentence."""
    parser = argparse.ArgumentParser(prog="python -m msaccel", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    for name, text in {
        "compare": "put finished runs side by side",
        "eval": "evaluate a saved run on its test set",
        "ui": "open MLflow's UI on this machine and print links to the runs",
    }.items():
        command = commands.add_parser(name, help=text, description=text)
        command.add_argument(
            "--tracking-uri",
            default=os.environ.get("MLFLOW_TRACKING_URI") or compose.default_uri(),
            help="MLflow's store; MLFLOW_TRACKING_URI, or mlruns/mlflow.db of the repository",
        )
        _add_options(name, command)
    data = commands.add_parser("data", help="fetch and check a data set", description="fetch and check a data set")
    data.add_argument("name", choices=("mnist", "fashion_mnist"))
    data.add_argument("--cache", default=os.environ.get("MSACCEL_CACHE", "~/.cache/msaccel"))
    options = parser.parse_args(arguments)
    try:
        return int(_COMMANDS[options.command](options))
    except UserError as error:
        print(error, file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 130


def _add_options(name: str, command: argparse.ArgumentParser) -> None:
    if name == "compare":
        command.add_argument("--experiment", help="only runs of this experiment, for example lenet-mnist")
        command.add_argument("--sweep", help="only runs with this sweep_id")
        command.add_argument(
            "--into", type=Path, help="also write the table into this Markdown file, between its markers"
        )
    elif name == "eval":
        command.add_argument("run", help="run id, as MLflow shows it")
        command.add_argument("--checkpoint", choices=("last", "best"), default="last")
    else:
        command.add_argument("--port", type=int, default=5000)


def _compare(options: argparse.Namespace) -> int:
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


def _eval(options: argparse.Namespace) -> int:
    from msaccel.saved import evaluate_run

    score = evaluate_run(options.tracking_uri, options.run, options.checkpoint)
    print(f"{options.checkpoint} checkpoint of {options.run}: accuracy {score.accuracy:.4%}, loss {score.loss:.6f}")
    return 0


def _ui(options: argparse.Namespace) -> int:
    from msaccel.tracking.ui import serve

    return serve(options.tracking_uri, options.port)


def _data(options: argparse.Namespace) -> int:
    from msaccel.data.fetch import locate

    print(locate(options.name, None, options.cache))
    return 0


_COMMANDS = {"compare": _compare, "eval": _eval, "ui": _ui, "data": _data}

if __name__ == "__main__":
    sys.exit(main())
