"""Resume checkpoints on disk: `update-0000000100.<SHA-256 of the whole file>.safetensors`.

The name holds the digest, so a file is known to be complete before anything in it is read. Nothing is ever unpickled.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from msaccel.checkpoint import safetensors_io
from msaccel.errors import CheckpointError
from msaccel.files import atomic_write, open_regular

Arrays = dict[str, NDArray[np.generic]]

MARK = "msaccel-resume-1"
_NAME = re.compile(r"update-(\d{10})\.([0-9a-f]{64})\.safetensors")


@dataclass(frozen=True)
class ResumeState:
    """A checkpoint as it was read.

    Attributes:
        update: after how many updates it was written.
        arrays: by name.
        facts: everything else, as JSON.
    """

    update: int
    arrays: Arrays
    facts: dict[str, Any]


def write(folder: Path, update: int, arrays: Arrays, facts: dict[str, Any], keep: int) -> Path:
    """Writes a checkpoint, which gets its final name once it is on the disk, then removes all but the last `keep`.

    Raises:
        OSError: it could not be written; those before it stay.
    """
    folder.mkdir(parents=True, exist_ok=True)
    for left in folder.glob("update-*.part"):  # by a job that was killed while it wrote
        left.unlink(missing_ok=True)
    pieces, digest = list(safetensors_io.pieces(arrays, MARK, facts)), hashlib.sha256()
    for piece in pieces:
        digest.update(piece)
    path = folder / f"update-{update:010d}.{digest.hexdigest()}.safetensors"
    with atomic_write(path) as file:
        file.writelines(pieces)
    _sync(folder)
    for old in newest_first(folder)[keep:]:
        old.unlink(missing_ok=True)
    return path


def _sync(folder: Path) -> None:
    """Flushes the folder's entries to the disk, before the files that the new one replaces are removed."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def newest_first(folder: Path) -> list[Path]:
    """The files of a folder that are named as checkpoints."""
    found = [path for path in folder.glob("update-*.safetensors") if _NAME.fullmatch(path.name)]
    return sorted(found, key=lambda path: (path.name[:17], path.stat().st_mtime_ns), reverse=True)


def _digest(path: Path) -> str:
    digest = hashlib.sha256()
    with open_regular(path) as file:
        while chunk := file.read(2**20):
            digest.update(chunk)
    return digest.hexdigest()


def read(path: Path) -> ResumeState:
    """Reads a checkpoint after checking that it is intact.

    Raises:
        CheckpointError: it is damaged, or no checkpoint of msaccel's.
    """
    name = _NAME.fullmatch(path.name)
    if name is None:
        raise CheckpointError(f"{path} is no resume checkpoint; resume with one that a job has written.")
    try:
        if _digest(path) != name[2]:
            raise CheckpointError(f"{path} is damaged: its bytes are not those that were written.")
        with safetensors_io.opened(path) as opened:
            facts = json.loads((opened.metadata() or {}).get(MARK, "null"))
            arrays = {key: opened.get_tensor(key) for key in opened.keys()}  # noqa: SIM118 - it is no dictionary
    except (OSError, safetensors_io.Unreadable) as error:
        reason = getattr(error, "strerror", None) or error
        raise CheckpointError(f"{path} cannot be read as a resume checkpoint ({reason}).") from error
    if not isinstance(facts, dict):
        raise CheckpointError(f"{path} cannot be read as a resume checkpoint (it lacks the mark {MARK}).")
    return ResumeState(int(name[1]), arrays, facts)
