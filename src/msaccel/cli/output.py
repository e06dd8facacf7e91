"""Commands whose output nobody takes any more: the reader of a pipe has left, or a disk is full."""

from __future__ import annotations

import os
import select
import sys
from collections.abc import Callable

from msaccel.errors import of_the_disk


def guarded(command: Callable[[], int]) -> int:
    """Runs a command to the last byte of its output; returns its exit code, or 1 if that could not be written."""
    try:
        code = command()
        sys.stdout.flush()
        return code
    except BrokenPipeError:
        if not _reader_has_left():
            raise
        _discard_output()  # as of `… | head`: the reader has seen enough
    except OSError as error:
        said = of_the_disk(error)
        if not said:
            raise
        _discard_output()
        print(said, file=sys.stderr)
    return 1


def _reader_has_left() -> bool:
    """Whether standard output is a pipe that nobody reads; a connection may be broken as well."""
    output = select.poll()
    output.register(sys.stdout.fileno(), 0)
    return any(events & select.POLLERR for _, events in output.poll(0))


def _discard_output() -> None:
    """Python writes what is left when it ends, and would complain again."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
