"""Ending a job that is interrupted while it trains, or can no longer log: it ends between two updates, with all its
progress in a checkpoint.

Before the first update there is nothing to keep, and what takes too long is cut off: then the last checkpoint counts.
"""

from __future__ import annotations

import signal
from types import FrameType

SECONDS_TO_END = 25.0  # that a job has once it is told to end: Slurm and Kubernetes kill it 30 s after SIGTERM
_SECONDS_TO_LOG = 3.0  # the last of them

_listening = False
_asked = False
_why: BaseException = KeyboardInterrupt()


def listen() -> None:
    """Notes that an update has been made, and that the training loop checks `requested` from now on."""
    global _listening
    _listening = True


def ask() -> bool:
    """Asks the loop to end, from a signal handler; returns False if it has made no update yet and must be interrupted.

    If the loop does not get to it in time, it is interrupted by `KeyboardInterrupt`.
    """
    global _asked
    if _listening:
        _asked = True
        signal.signal(signal.SIGALRM, _too_late)
        signal.setitimer(signal.ITIMER_REAL, SECONDS_TO_END - _SECONDS_TO_LOG)
    return _listening


def end_with(error: Exception) -> None:
    """Asks the loop to end as after a signal, but with this error: its progress cannot be logged any more."""
    global _asked, _why
    if not _asked:
        _asked, _why = True, error


def why() -> BaseException:
    """What the loop raises when it ends as it was asked to."""
    return _why


def requested() -> bool:
    """Whether the loop should end; once it has asked, it gets all the time it needs."""
    if _asked:
        signal.setitimer(signal.ITIMER_REAL, 0)
    return _asked


def _too_late(signal_number: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt
