"""`kernels`: builds the operators on oneDNN ahead of the first job, or shows their status."""

from __future__ import annotations

import argparse


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("action", choices=("build", "status"))


def run(options: argparse.Namespace) -> int:
    from msaccel.kernels import build

    try:
        if options.action == "build":
            print(f"kernels: convolutions by oneDNN, {build.library()}")
        elif found := build.cached():
            print(f"kernels: convolutions by oneDNN, {found}")
        else:
            print(f"kernels: not built yet; the first job builds them with {build.find_compiler()[0]}.")
        return 0
    except build.UnavailableError as error:
        print(f"kernels: convolutions as unfold and matrix product, several times slower: {error}")
        return 1
