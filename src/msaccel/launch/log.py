"""Logging of launcher and workers: plain messages, INFO on standard output and everything else on standard error.

The first rank's messages are also in its job's folder, in `job.log`, which becomes an artifact of the run.
"""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from msaccel.errors import printable
from msaccel.tracking.credentials import scrubbed

DEBUG_VARIABLE = "MSACCEL_DEBUG"  # not empty: processes log at level DEBUG
FILE = "job.log"
_LOGGER = logging.getLogger("msaccel")


class _Printable(logging.Formatter):
    """Escapes whatever a terminal could obey, and leaves out passwords of addresses."""

    def format(self, record: logging.LogRecord) -> str:
        return printable(scrubbed(super().format(record)), kept="\n\t")


class _Terminal(logging.Handler):
    """Writes to the standard streams that the process has at the time of a message."""

    def emit(self, record: logging.LogRecord) -> None:
        try:
            stream = sys.stdout if record.levelno == logging.INFO else sys.stderr
            print(self.format(record), file=stream, flush=True)
        except OSError:
            pass  # nobody reads it any more, or the disk is full: a traceback for each message would not help
        except (TypeError, ValueError):  # not what a signal handler may raise here
            self.handleError(record)


class _File(logging.FileHandler):
    """A file of messages; on a full disk it loses the rest of them and nothing else happens."""

    def handleError(self, record: logging.LogRecord) -> None:
        pass


def set_up(rank: int = 0, debug: bool = False) -> None:
    """Sends this process's messages to the terminal, and to no handler of the root logger; may be called again.

    Args:
        rank: the first rank logs INFO; the others log warnings, so that nothing is said once for each rank.
        debug: log at level DEBUG, as with the environment variable MSACCEL_DEBUG.
    """
    normal = logging.INFO if rank == 0 else logging.WARNING
    terminal = _Terminal()
    terminal.setFormatter(_Printable())
    _LOGGER.handlers = [terminal]
    _LOGGER.propagate = False
    _LOGGER.setLevel(logging.DEBUG if debug or os.environ.get(DEBUG_VARIABLE) else normal)


def keep_in(folder: Path) -> None:
    """Adds this process's messages, with their times, to the folder's `job.log`."""
    file = _File(folder / FILE, encoding="utf-8")
    file.setFormatter(_Printable("%(asctime)s %(levelname)s %(message)s"))
    _LOGGER.addHandler(file)


def wants_debug(verbose: bool | str | Sequence[str]) -> bool:
    """Whether Hydra's `hydra.verbose` asks for debug messages of msaccel: true, msaccel, or a list with it."""
    names = [verbose] if isinstance(verbose, (bool, str)) else verbose
    return True in names or _LOGGER.name in names


def for_workers() -> dict[str, str]:
    """The environment that gives started processes the log level of this one."""
    return {DEBUG_VARIABLE: "1"} if _LOGGER.isEnabledFor(logging.DEBUG) else {}
