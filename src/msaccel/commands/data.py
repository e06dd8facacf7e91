"""A data set, fetched and checked before a job needs it."""

from __future__ import annotations

import argparse
import os


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", choices=("mnist", "fashion_mnist"))
    parser.add_argument("--cache", default=os.environ.get("MSACCEL_CACHE", "~/.cache/msaccel"))


def run(options: argparse.Namespace) -> int:
    from msaccel.data.fetch import locate

    print(locate(options.name, None, options.cache))
    return 0
