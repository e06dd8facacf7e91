"""Everything beside training: comparing runs, studies, data sets, devices and several servers."""

from __future__ import annotations

import argparse
import importlib
import sys
from pathlib import Path
from typing import NoReturn

from msaccel.cli.commands import COMMANDS
from msaccel.cli.output import guarded
from msaccel.config.messages import without_passwords
from msaccel.errors import ConfigError, UserError, printable
from msaccel.launch import log
from msaccel.tracking.credentials import has_password, scrubbed


class Parser(argparse.ArgumentParser):
    """A parser that says what it cannot read without the passwords in it."""

    def error(self, message: str) -> NoReturn:
        super().error(without_passwords(message))


def parser() -> Parser:
    """The parser of the command line, with a subparser for each command."""
    parser = Parser(prog="python -m msaccel", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    for name, text in COMMANDS.items():
        command = commands.add_parser(name, help=text, description=text)
        module = importlib.import_module(f"msaccel.cli.commands.{name.replace('-', '_')}")
        module.options(command)
        command.set_defaults(run=module.run)
    return parser


def main(arguments: list[str] | None = None) -> int:
    """Runs one command; returns the exit code: 0, 1 if it found a problem, 2 if it was refused, 130 if interrupted."""
    return guarded(lambda: run(arguments))


def run(arguments: list[str] | None) -> int:
    """What `main` does, as long as its output can be written."""
    log.set_up()
    try:
        options = parser().parse_args(arguments)
        for name, value in vars(options).items():
            if isinstance(value, Path) and has_password(str(value)):
                raise ConfigError(f"--{name} holds an address with a password, which is no path; write a path.")
        return int(options.run(options))
    except UserError as error:
        print(printable(scrubbed(str(error)), kept="\n"), file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 130


if __name__ == "__main__":
    sys.exit(main())
