"""A sweep's folder: which command it is of, whose it is now, and whether it is over.

`sweep.json` is written before the first job starts and stays when all have finished and everything else is removed, so
that the same command with `sweep.resume=true` always finds what is left to do: all of it, some of it or nothing.
"""

from __future__ import annotations

import shlex
import shutil
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from filelock import BaseFileLock
from omegaconf import DictConfig, OmegaConf

from msaccel.config.compose import chosen_uri
from msaccel.errors import UserError
from msaccel.launch.job_folder import JobFolder, Result
from msaccel.tracking.credentials import without_password
from msaccel.tracking.status import FINISHED

FILE = "sweep.json"
# Keys in which the commands of one sweep may differ: how its jobs are started and kept, not what they train.
_NOT_ASKED = ("sweep.", "checkpoint.", "tracking.uri", "data.cache", "data.workers", "device.timeout_s")
_SUBMITTED = ".submitit"
HOW_TO_GO_ON = "to go on with the sweep: the same command with sweep.resume=true"

held: list[SweepFolder] = []  # that of this process


@dataclass(frozen=True)
class Command:
    """What makes two sweeps the same.

    Attributes:
        overrides: as typed, in their order, since jobs are numbered by it.
        sweeper: Hydra's settings of it, such as the ranges of a search.
        tracking_uri: the store, without password.
    """

    overrides: list[str]
    sweeper: dict[str, Any]
    tracking_uri: str

    @classmethod
    def of(cls, config: DictConfig) -> Command:
        """The command of a composed sweep."""
        typed = [text for text in config.hydra.overrides.task if not text.lstrip("+~").startswith(_NOT_ASKED)]
        sweeper: Any = OmegaConf.to_container(config.hydra.sweeper, resolve=True, enum_to_str=True)
        return cls(typed, sweeper, without_password(chosen_uri(config.tracking.uri)))


@dataclass(frozen=True)
class Kept:
    """The content of `sweep.json`.

    Attributes:
        typed: what follows `python run.py -m`, without `sweep.resume` and passwords.
        started: a time in UTC.
        finished: the ids of all jobs' runs once the sweep is over; None until then.
    """

    command: Command
    typed: list[str]
    started: str
    finished: list[str] | None = None


@dataclass
class SweepFolder:
    """The folder of one sweep, with a folder for each job, named by its number."""

    path: Path
    _lock: BaseFileLock | None = None

    @property
    def here(self) -> JobFolder:
        return JobFolder(self.path)

    def kept(self) -> Kept | None:
        """What `sweep.json` says; None if there is none, or one of another kind."""
        try:
            found: Any = self.here.read(FILE)
            return Kept(**{**found, "command": Command(**found["command"])}) if found else None
        except (KeyError, TypeError, ValueError, OSError):
            return None

    def begin(self, config: DictConfig) -> None:
        """Makes the folder this process's, for a new sweep of this configuration."""
        self.path.mkdir(parents=True, exist_ok=True)
        self._take()
        kept = Kept(Command.of(config), _typed(config), datetime.now(timezone.utc).isoformat())
        self.here.write(FILE, asdict(kept))

    def again(self) -> None:
        """Makes the folder this process's, to go on with its sweep.

        Raises:
            UserError: another process is still at work on it.
        """
        self._take()
        if (self.path / _SUBMITTED).exists():  # jobs of the last start; their ids are no longer those to wait for
            (self.path / _SUBMITTED).rename(self.path / f"{_SUBMITTED}-before-{datetime.now():%H-%M-%S-%f}")

    def _take(self) -> None:
        try:
            self._lock = self.here.lock("sweep")
            held[:] = [self]
        except UserError as error:
            raise UserError(
                f"sweep.resume=true: the sweep in {self.path} still runs, in another process; wait for it, or end it."
            ) from error

    def goes_on(self) -> bool:
        """Whether there is a sweep, and jobs of it may be left."""
        kept = self.kept()
        return kept is not None and kept.finished is None

    def how_to_go_on(self) -> str:
        """The command that does what is left; empty if nothing is, or another process is at it."""
        kept = self.kept()
        if kept is None or kept.finished is not None or self.here.is_held("sweep"):
            return ""
        return shlex.join(["python", "run.py", "-m", *kept.typed, "sweep.resume=true"])

    def jobs(self) -> list[JobFolder]:
        """The folders of the jobs that were begun, by their numbers."""
        numbered = [path for path in self.path.iterdir() if path.is_dir() and path.name.isdigit()]
        return [JobFolder(path) for path in sorted(numbered, key=lambda path: int(path.name))]

    def results(self) -> list[Result]:
        """How the jobs ended that have."""
        return [result for folder in self.jobs() if (result := folder.result())]

    def finish(self, run_ids: Iterable[str]) -> None:
        """Notes that all jobs have finished, and removes what they kept: MLflow has a copy of it."""
        kept = self.kept()
        if kept:
            self.here.write(FILE, {**asdict(kept), "finished": list(run_ids)})
        self.empty()

    def empty(self) -> None:
        """Removes all but `sweep.json`."""
        for path in self.path.iterdir():
            if path.is_dir():
                shutil.rmtree(path)
            elif path.name != FILE:
                path.unlink()

    def state(self) -> str:
        """`2 of 6 jobs have finished`, of those that were begun."""
        ended = [result.status for result in self.results()]
        return f"{ended.count(FINISHED)} of the {len(self.jobs())} jobs that were begun have finished"


def _typed(config: DictConfig) -> list[str]:
    hydra = [text for text in config.hydra.overrides.hydra if not text.startswith("hydra.mode=")]
    uri = config.tracking.uri
    task = [text.replace(uri, without_password(uri)) for text in config.hydra.overrides.task]
    return [*hydra, *(text for text in task if not text.startswith("sweep.resume="))]


def newest(folders: Path, command: Command) -> SweepFolder | None:
    """The newest sweep of a command among the folders below one; None if there is none."""
    found = [(kept.started, folder) for folder, kept in _sweeps(folders) if kept.command == command]
    return max(found, key=lambda pair: pair[0])[1] if found else None


def _sweeps(folders: Path) -> Iterator[tuple[SweepFolder, Kept]]:
    for path in folders.glob(f"*/{FILE}"):
        folder = SweepFolder(path.parent)
        if kept := folder.kept():
            yield folder, kept
