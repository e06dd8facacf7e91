"""A sweep's folder: the command it belongs to, the process that works on it, and whether it is finished.

`sweep.json` is written before the first job starts. It stays when all jobs have finished and the rest is removed, so
the same command with `sweep.resume=true` always finds what is left to do: all jobs, some of them or none.
"""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from filelock import BaseFileLock
from omegaconf import DictConfig, OmegaConf

from msaccel.config.compose import chosen_uri
from msaccel.config.overrides import in_quotes
from msaccel.errors import UserError
from msaccel.launch.job import Result
from msaccel.launch.job_folder import JobFolder
from msaccel.tracking.credentials import without_password
from msaccel.tracking.status import FINISHED

FILE = "sweep.json"
SWEEP_DIR = "hydra.sweep.dir="  # of an override
# Keys in which two commands of one sweep may differ: they say how jobs are started and stored, not what is trained.
_IGNORED_KEYS = ("sweep.", "checkpoint.", "tracking.uri", "data.cache", "data.workers", "device.timeout_s")
_TIME = re.compile(r"\d{4}-\d\d-\d\d_\d\d-\d\d-\d\d-\d{6}")  # the folder's name where nobody gives another
_SUBMITIT_FOLDER = ".submitit"
STOPPING = "stopping the jobs, each after its current update; Ctrl-C again does not wait for them"
RESUME_HINT = "to go on with the sweep: the same command with sweep.resume=true"


@dataclass(frozen=True)
class SweepCommand:
    """What identifies a sweep: two commands with equal fields are the same sweep.

    Attributes:
        overrides: as typed and in their order, which numbers the jobs.
        sweeper: Hydra's settings of the sweeper, such as the ranges of a search.
        tracking_uri: the store, without its password.
    """

    overrides: list[str]
    sweeper: dict[str, Any]
    tracking_uri: str

    @classmethod
    def of(cls, config: DictConfig) -> SweepCommand:
        """The command of a composed sweep."""
        overrides = [text for text in config.hydra.overrides.task if not text.lstrip("+~").startswith(_IGNORED_KEYS)]
        sweeper: Any = OmegaConf.to_container(config.hydra.sweeper, resolve=True, enum_to_str=True)
        return cls(overrides, sweeper, without_password(chosen_uri(config.tracking.uri)))


@dataclass(frozen=True)
class SweepRecord:
    """The content of `sweep.json`.

    Attributes:
        typed: the arguments after `python run.py -m`, without `sweep.resume` and passwords.
        started: a time in UTC.
        jobs: how many there are; None where that was not known.
        finished: the run ids of all jobs once the sweep has finished; None until then.
        sweep_id: the tag of its runs; empty in files of earlier versions, whose runs have the folder's name.
    """

    command: SweepCommand
    typed: list[str]
    started: str
    jobs: int | None = None
    finished: list[str] | None = None
    sweep_id: str = ""

    @property
    def store(self) -> list[str]:
        """The arguments that name the store."""
        return [word for word in self.typed if word.startswith(("tracking.uri=", "tracking.artifacts="))]


@dataclass
class SweepFolder:
    """The folder of one sweep. It holds one folder for each job, named by the job's number."""

    path: Path
    _lock: BaseFileLock | None = None  # released when this object goes

    @property
    def files(self) -> JobFolder:
        """Locks and JSON files of the sweep itself."""
        return JobFolder(self.path)

    def record(self) -> SweepRecord | None:
        """The content of `sweep.json`; None if there is no such file, or one of another program."""
        try:
            found: Any = self.files.read(FILE)
            return SweepRecord(**{**found, "command": SweepCommand(**found["command"])}) if found else None
        except (KeyError, TypeError, ValueError, OSError):
            return None

    @property
    def sweep_id(self) -> str:
        """The tag that its runs share, and no others.

        Raises:
            UserError: the sweep's file cannot be read.
        """
        record = self.record()
        if record is None and os.path.lexists(self.path / FILE):
            raise UserError(f"{self.path / FILE} cannot be read; put it back, or begin the sweep in another folder.")
        return (record.sweep_id if record else "") or self.path.name

    def create(self, config: DictConfig, jobs: int | None = None) -> None:
        """Makes and locks the folder for a new sweep of this configuration with so many jobs."""
        self.path.mkdir(parents=True, exist_ok=True)
        self._acquire()
        now = datetime.now(timezone.utc)
        # A folder of another name may have been a sweep's before, or there is one like it elsewhere.
        name = self.path.name if _TIME.fullmatch(self.path.name) else f"{self.path.name}_{now:%Y-%m-%d_%H-%M-%S-%f}"
        record = SweepRecord(SweepCommand.of(config), _typed_arguments(config), now.isoformat(), jobs, sweep_id=name)
        self.files.write(FILE, asdict(record), durable=True)

    def reopen(self) -> None:
        """Locks the folder to resume its sweep.

        Raises:
            UserError: another process still works on it.
        """
        self._acquire()
        submitted = self.path / _SUBMITIT_FOLDER
        if submitted.exists():  # job ids of the last start, which must not be waited for any more
            submitted.rename(self.path / f"{_SUBMITIT_FOLDER}-before-{datetime.now():%H-%M-%S-%f}")

    def _acquire(self) -> None:
        try:
            self._lock = self.files.lock("sweep")
        except UserError as error:
            raise UserError(
                f"hydra.sweep.dir={self.path}: its sweep still runs, in another process; wait for it, or end it."
            ) from error

    def is_unfinished(self) -> bool:
        """Whether there is a sweep here that has jobs left to do; also one whose file cannot be read just now."""
        record = self.record()
        return record.finished is None if record else os.path.lexists(self.path / FILE)

    def resume_command(self) -> str:
        """The command that does what is left; empty if nothing is left or another process works on it."""
        record = self.record()
        if record is None or record.finished is not None or self.files.is_held("sweep"):
            return ""
        later = newest(self.path.parent, record.command)
        own = [f"{SWEEP_DIR}{in_quotes(str(self.path))}"] if later and not later.path.samefile(self.path) else []
        typed = [word for word in record.typed if not (own and word.startswith(SWEEP_DIR))]
        return shlex.join(["python", "run.py", "-m", *typed, *own, "sweep.resume=true"])

    def jobs(self) -> list[JobFolder]:
        """The folders of the jobs that have started, by number."""
        numbered = [path for path in self.path.iterdir() if path.is_dir() and path.name.isdigit()]
        return [JobFolder(path) for path in sorted(numbered, key=lambda path: int(path.name))]

    def results(self) -> list[Result]:
        """The results of the jobs that have ended."""
        return [result for folder in self.jobs() if (result := folder.result())]

    def finish(self, run_ids: Iterable[str]) -> None:
        """Records that all jobs have finished, and removes their files: MLflow has a copy of them."""
        if record := self.record():
            self.files.write(FILE, {**asdict(record), "finished": list(run_ids)})
        self.clear_jobs()

    def clear_jobs(self) -> None:
        """Removes everything but `sweep.json`."""
        self.files.start_over(kept=FILE)

    def progress(self) -> str:
        """`2 of the 6 jobs that were begun have finished`."""
        statuses = [result.status for result in self.results()]
        return f"{statuses.count(FINISHED)} of the {len(self.jobs())} jobs that were begun have finished"


def _typed_arguments(config: DictConfig) -> list[str]:
    sources, name = config.hydra.runtime.config_sources, config.hydra.job.config_name
    flags = [f"--config-dir={source.path}" for source in sources if source.provider == "command-line"]
    flags += [f"--config-name={name}"] if name != "config" else []
    hydra = [text for text in config.hydra.overrides.hydra if not text.startswith("hydra.mode=")]
    return [*flags, *hydra, *(text for text in config.hydra.overrides.task if not text.startswith("sweep.resume="))]


def newest(parent: Path, command: SweepCommand) -> SweepFolder | None:
    """The newest sweep of a command among the folders inside `parent`; None if there is none."""
    folders = [SweepFolder(path.parent) for path in parent.glob(f"*/{FILE}")]
    found = [(record.started, one) for one in folders if (record := one.record()) and record.command == command]
    return max(found, key=lambda pair: pair[0])[1] if found else None
