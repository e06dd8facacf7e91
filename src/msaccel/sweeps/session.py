"""What one call of `run.py` has gathered: results, refusals, and the sweep it works on.

Hydra calls the task function and the callbacks without arguments of ours, and makes the callbacks itself from their
class names. So `msaccel.cli.main.main` opens a session in a context variable, and whatever Hydra calls finds it there
with `current`. Nothing is left behind when `main` returns, so two calls in one process do not see each other's jobs.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field

from omegaconf import DictConfig

from msaccel.launch.job import Result
from msaccel.sweeps.folder import SweepFolder


@dataclass
class Session:
    """The state of one call of `run.py`.

    Attributes:
        results: how the jobs ended; for a sweep they are read from the jobs' folders at its end.
        composed: whether Hydra has composed the command line, so that any later exception is a bug in msaccel.
        refusals: one sentence for each thing that was refused before it started.
        sweep: the folder of the sweep, whose lock is held as long as the session keeps it.
        submitted: the configuration of the sweep whose jobs submitit runs.
        interrupted: whether a signal has asked for the end. A `KeyboardInterrupt` alone may be lost: the launcher drops
            it if the job has just finished, and Python drops it in a destructor.
    """

    results: list[Result] = field(default_factory=list)
    refusals: list[str] = field(default_factory=list)
    composed: bool = False
    sweep: SweepFolder | None = None
    submitted: DictConfig | None = None
    interrupted: bool = False

    def end_if_interrupted(self) -> None:
        """Raises `KeyboardInterrupt` if a signal has come; before each job of a sweep, and before its report."""
        if self.interrupted:
            raise KeyboardInterrupt


_current: ContextVar[Session] = ContextVar("msaccel_session")


@contextmanager
def opened() -> Iterator[Session]:
    """A new session, current until the block ends."""
    session = Session()
    token = _current.set(session)
    try:
        yield session
    finally:
        _current.reset(token)


def current() -> Session:
    """The open session.

    A job that joblib or submitit runs in another process has none there. It gets an empty one that nobody reads, since
    such a job reports through its folder.
    """
    return _current.get(Session())
