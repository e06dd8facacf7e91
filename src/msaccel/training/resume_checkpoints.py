"""When a resume checkpoint is due, and what is done with it; the first rank decides, writes and reads for all ranks."""

from __future__ import annotations

import logging
import shutil
import time
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from msaccel.checkpoint import gather, resume_file
from msaccel.checkpoint.resume_file import Arrays, ResumeState
from msaccel.distributed.communicator import Communicator
from msaccel.errors import CheckpointError
from msaccel.launch.job_folder import RESUME
from msaccel.schema import CheckpointSettings
from msaccel.tracking import stopping

_log = logging.getLogger(__name__)

_SECONDS_BETWEEN_LOOKS = 1.0  # of several processes: each look is an exchange


@dataclass
class ResumeCheckpoints:
    """The resume checkpoints of one job.

    Attributes:
        settings: how often they are written, and how many are kept.
        folder: of the job.
        comm: its processes.
        identity: what a resumed job must share with this one: data, kernels.
        run_id: of the job's MLflow run.
        job_settings: the settings that a resumed job must share, as text by key.
    """

    settings: CheckpointSettings
    folder: Path
    comm: Communicator
    identity: dict[str, str]
    run_id: str = ""
    job_settings: dict[str, str] = field(default_factory=dict)
    _written: float = field(default_factory=time.monotonic)
    _look: int = 0
    _looked: tuple[int, float] = (0, 0.0)

    @property
    def files(self) -> Path:
        return self.folder / RESUME

    def watch(self, updates: int) -> None:
        """Measures anew how long updates take: from here on they may be of another kind."""
        self._look, self._looked = updates + 1, (updates, time.monotonic())

    def due(self, updates: int) -> bool:
        """Whether to write a checkpoint after this update; the same on all ranks."""
        every, minutes, now = self.settings.every_updates, self.settings.every_minutes, time.monotonic()
        by_count = every is not None and updates % every == 0
        if updates < self._look:
            return by_count
        wanted = stopping.requested() or (minutes is not None and now - self._written >= 60 * minutes)
        if self.comm.world_size == 1:
            return by_count or wanted
        wanted, ahead = self.comm.all_gather(np.array([wanted, self._ahead(updates, now)], np.int64))[0].tolist()
        self._look, self._looked = updates + ahead, (updates, now)
        return by_count or bool(wanted)

    def _ahead(self, updates: int, now: float) -> int:
        """After how many more updates to look again."""
        before, then = self._looked
        pace = (updates - before) / max(now - then, 1e-6)
        return max(1, min(int(pace * _SECONDS_BETWEEN_LOOKS), 2 * (updates - before)))

    def write(self, updates: int, arrays: Arrays, facts: dict[str, Any]) -> None:
        """Writes a checkpoint; where it cannot be written, training goes on with those before it.

        Raises:
            KeyboardInterrupt, TrackingError: the job was asked to end, and this was its last act.
        """
        all_ranks = gather.gather_state(arrays, self.comm)
        of_job = {"identity": self.identity, "run_id": self.run_id, "settings": self.job_settings}
        if self.comm.is_main:
            try:
                resume_file.write(self.files, updates, all_ranks, {**facts, **of_job}, self.settings.keep)
            except OSError as error:
                _log.warning(
                    "the resume checkpoint of update %d could not be written (%s); training goes on, and the one "
                    "before it stays.",
                    updates,
                    error.strerror,
                )
        self._written = time.monotonic()
        if stopping.requested():
            raise stopping.why()

    def read(self) -> ResumeState | None:
        """The newest intact checkpoint; None if there is none. Damaged ones are put aside, with a warning.

        Raises:
            CheckpointError: it belongs to another run, or was written with other data, kernels or settings.
        """
        resume_state = gather.broadcast_state(self._newest() if self.comm.is_main else None, self.comm)
        if resume_state:
            self._check(resume_state.facts)
        return resume_state

    def _check(self, facts: dict[str, Any]) -> None:
        """Compares what a checkpoint says of its job with this one."""
        identity = facts.get("identity")
        for what, now in self.identity.items():
            then = identity.get(what) if isinstance(identity, dict) else None
            if then != now:
                raise CheckpointError(
                    f"the job had {what} {then} and would have {now} here, so it would not go on exactly; resume it "
                    "where it was started, or start a new job."
                )
        run_id, settings = facts.get("run_id", self.run_id), facts.get("settings", {})  # older checkpoints have neither
        if run_id != self.run_id:
            raise CheckpointError(f"{self.files} holds a checkpoint of run {run_id}; start a new job.")
        for key, now in self.job_settings.items():
            if isinstance(settings, dict) and settings.get(key, now) != now:
                raise CheckpointError(
                    f"{key} was {settings[key]} when the checkpoint was written and is {now} in the job's config.yaml; "
                    "put it back, or start a new job."
                )

    def clear(self) -> None:
        """Removes all: the job has finished."""
        if self.comm.is_main:
            shutil.rmtree(self.files, ignore_errors=True)

    def _newest(self) -> ResumeState | None:
        for path in resume_file.newest_first(self.files):
            try:
                return resume_file.read(path)
            except CheckpointError as error:
                _log.warning("%s The one before it is used.", error)
                with suppress(OSError):
                    path.rename(path.with_suffix(".damaged"))  # otherwise it would count towards those that are kept
        return None
