"""The folder in which the launcher puts a job's settings and the workers put its result."""

from __future__ import annotations

import fcntl
import json
import os
import re
import shutil
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from filelock import BaseFileLock, FileLock, Timeout

from msaccel.errors import UserError
from msaccel.files import atomic_write_text, open_regular
from msaccel.launch.job import Result, Task

_LOCK = re.compile(r"(launcher|sweep|rank-\d+)\.lock")  # the only files that a start killed at once leaves behind
RESUME = "resume"  # the folder of the checkpoints from which the job can go on
_BEFORE = "before-resume.json"
_SECONDS_TO_LOCK = 1.0  # longer than `is_held` holds it
_SECONDS_TO_END = 60.0  # more than a rank takes to end after its launcher


@dataclass(frozen=True)
class JobFolder:
    """`config.yaml` and `job.json` are written by the launcher, `run.json` and `result.json` by the worker."""

    path: Path

    @property
    def config(self) -> Path:
        return self.path / "config.yaml"

    def write(self, name: str, content: object, durable: bool = False) -> None:
        """Writes JSON atomically; durable: to survive a power failure."""
        atomic_write_text(self.path / name, json.dumps(content, indent=2), durable)

    def read(self, name: str) -> dict[str, Any] | None:
        """What was written under the name; None if it is missing or not a JSON object."""
        try:
            with open_regular(self.path / name) as file:
                content = json.load(file)
        except (OSError, ValueError, RecursionError):
            return None
        return content if isinstance(content, dict) else None

    def assign(self, task: Task) -> None:
        self.write("job.json", asdict(task), durable=True)

    def is_assigned(self) -> bool:
        """Whether a process may have been started for the job."""
        return (self.path / "job.json").exists()

    def is_ended(self) -> bool:
        """Whether there is a result."""
        return (self.path / "result.json").exists()

    def task(self) -> Task:
        """What `assign` wrote.

        Raises:
            UserError: the task is missing or damaged.
        """
        try:
            with open_regular(self.path / "job.json") as file:
                task = Task(**json.load(file))
            kinds = {name: type(value) for name, value in vars(Task("")).items()}
            as_typed = all(type(value) is kinds[name] for name, value in vars(task).items())
            if not as_typed or not all(isinstance(text, str) for text in [*task.overrides, *task.changed.values()]):
                raise TypeError("a value is of another type")
        except (OSError, TypeError, ValueError, RecursionError) as error:
            raise UserError(f"{self.path} is not the folder of a job that can be resumed ({error}).") from error
        return task

    def mlflow_run(self) -> tuple[str, str]:
        """The id of the job's MLflow run and the store that it is in; empty before there is one."""
        begun = self.read("run.json") or {}
        return begun.get("run_id", ""), begun.get("tracking_uri", "")

    def keep_settings(self) -> None:
        """Keeps `config.yaml` and `job.json` until the worker accepts those that the job is resumed with."""
        names = (self.config.name, "job.json")
        self.write(_BEFORE, {name: (self.path / name).read_text() for name in names}, durable=True)

    def accept_settings(self) -> None:
        """The job goes on with its present settings."""
        (self.path / _BEFORE).unlink(missing_ok=True)

    def restore_settings(self) -> None:
        """Puts back the settings that `keep_settings` kept, if the worker has not accepted others."""
        for name, text in (self.read(_BEFORE) or {}).items():
            atomic_write_text(self.path / name, text, durable=True)
        self.accept_settings()

    def forget(self) -> None:
        """Removes the results that the processes of a resumed job wrote when it ended."""
        for path in [self.path / "result.json", *self.path.glob("rank-*.json")]:
            path.unlink(missing_ok=True)

    def start_over(self, kept: str = "*.lock") -> None:
        """Removes all that the job has left but files with such names: the caller's lock."""
        for path in self.path.iterdir():
            if path.is_dir():
                shutil.rmtree(path)
            elif not path.match(kept):
                path.unlink()

    def finish(self, result: Result) -> Result:
        self.write("result.json", asdict(result))
        return result

    def lock(self, name: str, wait: bool = False) -> BaseFileLock:
        """Takes a lock of the folder, released with `release` or by the end of the process.

        Args:
            wait: wait until it is free, however long that takes.

        Raises:
            UserError: another process has it.
        """
        lock = FileLock(self.path / f"{name}.lock")
        try:
            lock.acquire(timeout=-1 if wait else _SECONDS_TO_LOCK)
        except Timeout as error:
            raise UserError(f"{self.path} is in use: another process still works on this job; end it first.") from error
        return lock

    def is_held(self, name: str) -> bool:
        """Whether a process has this lock of the folder; asking makes no file and blocks no other process.

        Raises:
            OSError: unknown, since the file cannot be read.
        """
        try:
            descriptor = os.open(self.path / f"{name}.lock", os.O_RDONLY)
        except FileNotFoundError:
            return False
        try:
            fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        finally:
            os.close(descriptor)
        return False

    def ranks_here(self) -> str:
        """The ranks of the job whose processes still run: `rank 0, rank 1`."""
        names = [file.stem for file in sorted(self.path.glob("rank-*.lock"))]
        return ", ".join(name.replace("-", " ") for name in names if self.is_held(name))

    def wait_for_ranks(self) -> None:
        """Waits until the ranks of a launcher that is gone have ended too.

        Raises:
            UserError: they still run after a minute.
        """
        until = time.monotonic() + _SECONDS_TO_END
        while others := self.ranks_here():
            if time.monotonic() > until:
                raise UserError(f"{self.path} is still trained by {others}; end it first.")
            time.sleep(0.2)

    def checkpoints(self) -> list[str]:
        """The names of the resume checkpoints that the job has left."""
        return sorted(path.name for path in (self.path / RESUME).glob("*.safetensors"))

    def holds_others_files(self) -> bool:
        """Whether the folder has files but no sign that it is a job's: then they must not be removed.

        The names alone say nothing: other programs write a `result.json` or `multirun.yaml` too.
        """
        try:
            inside = os.listdir(self.path)
        except (FileNotFoundError, NotADirectoryError):
            return False
        if all(map(_LOCK.fullmatch, inside)):
            return False
        try:
            self.task()
        except UserError:
            return True
        return False

    def failed_before_its_run(self) -> bool:
        """Whether the job has ended without an MLflow run, so that there is nothing to resume."""
        ended = self.result()
        return ended is not None and not ended.run_id and not (self.path / "run.json").exists()

    def why_occupied(self, key: str = "hydra.run.dir") -> str:
        """Why nothing else may be started in this job's folder, which this key names, in a sentence."""
        run_id, _ = self.mlflow_run()
        if run_id:
            return (
                f"{key}={self.path} holds the job of run {run_id}, which has not finished; write resume={run_id} to "
                f"continue it, or another {key}."
            )
        return f"{key}={self.path} holds a job that has not finished; write another {key}, or empty it."

    def discard(self) -> None:
        """Removes the folder of a job that was never started, if it is there."""
        if self.path.exists() and not self.is_assigned():
            self.clear()

    def clear(self) -> None:
        """Removes the folder, also if it is behind a link: MLflow has a copy of all that a finished job wrote."""
        shutil.rmtree(self.path.resolve())
        if self.path.is_symlink():
            self.path.unlink()

    def result(self) -> Result | None:
        """What `finish` wrote; None if that is not there, or something else is."""
        content = self.read("result.json")
        try:
            return Result(**content) if content else None
        except TypeError:
            return None
