"""A job that is interrupted while it trains, or cannot tell what it does: it ends between two updates, with all that
it has done in a checkpoint.

Before the first update there is nothing to keep, and what takes longer than a while is cut off: then the last
checkpoint counts.
"""

from __future__ import annotations

import signal
from types import FrameType

_SECONDS = 7.0  # of the 10 that the launcher gives; the rest is for logging

_listening = False
_asked = False
_why: BaseException = KeyboardInterrupt()


def listen() -> None:
    """Says that the loop has come so far that it answers."""
    global _listening
    _listening = True


def ask() -> bool:
    """Asks the loop to end, from a signal handler; False: it does not answer, so it must be interrupted.

    What it does not get to in time is interrupted by `KeyboardInterrupt`.
    """
    global _asked
    if _listening:
        _asked = True
        signal.signal(signal.SIGALRM, _too_late)
        signal.setitimer(signal.ITIMER_REAL, _SECONDS)
    return _listening


def end_with(error: Exception) -> None:
    """Asks the loop to end as it does after a signal, but with this error: what it has done cannot be told any more."""
    global _asked, _why
    if not _asked:
        _asked, _why = True, error


def why() -> BaseException:
    """What the loop raises when it ends as it was asked to."""
    return _why


def requested() -> bool:
    """Whether the loop shall end; from then on it is given the time it needs."""
    if _asked:
        signal.setitimer(signal.ITIMER_REAL, 0)
    return _asked


def _too_late(signal_number: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt
