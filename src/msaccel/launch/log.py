"""Logging of launcher and workers: plain messages, INFO on standard output and everything else on standard error."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Sequence

from msaccel.errors import printable

DEBUG_VARIABLE = "MSACCEL_DEBUG"  # not empty: processes log at level DEBUG
_LOGGER = logging.getLogger("msaccel")


class _Terminal(logging.Handler):
    """Writes to the standard streams that the process has at the time of a message."""

    def emit(self, record: logging.LogRecord) -> None:
        try:
            stream = sys.stdout if record.levelno == logging.INFO else sys.stderr
            print(printable(self.format(record), kept="\n\t"), file=stream, flush=True)
        except (OSError, TypeError, ValueError):  # not what a signal handler may raise here
            self.handleError(record)


def set_up(rank: int = 0, debug: bool = False) -> None:
    """Sends this process's messages to the terminal, and to no handler of the root logger; may be called again.

    Args:
        rank: the first rank logs INFO; the others log warnings, so that nothing is said once for each rank.
        debug: log at level DEBUG, as with the environment variable MSACCEL_DEBUG.
    """
    normal = logging.INFO if rank == 0 else logging.WARNING
    _LOGGER.handlers = [_Terminal()]
    _LOGGER.propagate = False
    _LOGGER.setLevel(logging.DEBUG if debug or os.environ.get(DEBUG_VARIABLE) else normal)


def wants_debug(verbose: bool | str | Sequence[str]) -> bool:
    """Whether Hydra's `hydra.verbose` asks for debug messages of msaccel: true, msaccel, or a list with it."""
    names = [verbose] if isinstance(verbose, (bool, str)) else verbose
    return True in names or _LOGGER.name in names


def for_workers() -> dict[str, str]:
    """The environment that gives started processes this one's level."""
    return {DEBUG_VARIABLE: "1"} if _LOGGER.isEnabledFor(logging.DEBUG) else {}
