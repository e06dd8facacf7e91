"""`sample`: text written by the network of a saved run."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable

from msaccel.cli.commands import add_saved_run, in_worker


def options(parser: argparse.ArgumentParser) -> None:
    add_saved_run(parser)
    parser.add_argument("--prompt", help="what the text goes on from, not printed (default: a line break)")
    parser.add_argument("--length", type=_within(int, 1, 1_000_000), default=500, help="characters (default: 500)")
    parser.add_argument("--temperature", type=_within(float, 0, 100), default=0.8, help="0: the likeliest character")
    parser.add_argument("--seed", type=_within(int, 0, 2**31 - 1), default=0, help="another one gives another text")


def run(options: argparse.Namespace) -> int:
    keys = ("prompt", "length", "temperature", "seed")
    written = in_worker(
        options, "sample_worker", json.dumps({key: getattr(options, key) for key in keys}, ensure_ascii=False)
    )
    print(written.stdout, end="")
    return written.returncode


def _within(kind: type[int] | type[float], least: int, most: int) -> Callable[[str], float]:
    """Reads a number of a range."""

    def read(given: str) -> float:
        number = kind(given)
        if not least <= number <= most:
            raise argparse.ArgumentTypeError(f"{given} is not from {least:,} to {most:,}")
        return number

    return read
