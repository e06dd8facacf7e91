"""`sample`: text written by the network of a saved run."""

from __future__ import annotations

import argparse
import json

from msaccel.cli.commands import add_saved_run, in_worker, number_from
from msaccel.models.gpt import MAX_BLOCK


def options(parser: argparse.ArgumentParser) -> None:
    add_saved_run(parser)
    parser.add_argument(
        "--prompt", type=_prompt, help="what the text goes on from, not printed (default: a line break)"
    )
    parser.add_argument("--length", type=number_from(int, 1, 1_000_000), default=500, help="characters (default: 500)")
    parser.add_argument(
        "--temperature", type=number_from(float, 0, 100), default=0.8, help="0: the likeliest character"
    )
    parser.add_argument("--seed", type=number_from(int, 0, 2**31 - 1), default=0, help="another one gives another text")


def run(options: argparse.Namespace) -> int:
    keys = ("prompt", "length", "temperature", "seed")
    written = in_worker(options, json.dumps({key: getattr(options, key) for key in keys}, ensure_ascii=False))
    print(written.stdout, end="")
    return written.returncode


def _prompt(given: str) -> str:
    # Longer ones would not be read, and an argument of a process has at most 131,072 bytes.
    if len(given) > MAX_BLOCK:
        raise argparse.ArgumentTypeError(
            f"the prompt has {len(given):,} characters, and a network reads the last {MAX_BLOCK:,} at most; "
            "give its end alone"
        )
    return given
