"""Files of float32 tensors in safetensors format, written atomically and read in parts.

The library's writer sorts tensors and builds the whole file in memory. This one keeps the given order, so that the
data of the parameters is the flat vector, and streams, so that a matrix P of gigabytes is not copied. Checking what
a file says is left to the library; nothing is ever unpickled.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from msaccel.checkpoint import safetensors_io
from msaccel.errors import CheckpointError, on_one_line
from msaccel.files import atomic_write


@dataclass(frozen=True)
class Kind:
    """A kind of file.

    Attributes:
        mark: name of the one metadata entry, which holds JSON.
        noun: what the file is called in messages.
        key: the setting that names such files.
    """

    mark: str
    noun: str
    key: str

    def refuse(self, path: Path, reason: str) -> CheckpointError:
        reason = on_one_line(reason, 200)  # it may hold names from the file
        return CheckpointError(f"{path} cannot be used as {self.noun} ({reason}); give another with {self.key}.")


@dataclass(frozen=True)
class Contents:
    """What a file holds.

    Attributes:
        facts: the JSON of the metadata entry.
        shapes: of the tensors by name, in the order of their data.
        start: where the data begin, in bytes; from there on they have no gaps.
    """

    facts: dict[str, Any]
    shapes: dict[str, tuple[int, ...]]
    start: int


def write(path: Path, tensors: Mapping[str, NDArray[np.float32]], kind: Kind, facts: dict[str, Any]) -> None:
    """Writes tensors in the given order: the file is whole, or the one before stays."""
    arrays = {name: np.asarray(tensor, "<f4") for name, tensor in tensors.items()}
    with atomic_write(path) as file:
        file.writelines(safetensors_io.pieces(arrays, kind.mark, facts))


def read(path: Path, kind: Kind) -> Contents:
    """Reads and checks all but the data; their amount is checked too.

    Raises:
        CheckpointError: the file is missing, damaged, or of another kind.
    """
    try:
        with safetensors_io.opened(path) as file:
            metadata = (file.metadata() or {}).get(kind.mark)
            slices = {name: file.get_slice(name) for name in file.offset_keys()}
            shapes = {name: tuple(part.get_shape()) for name, part in slices.items()}
            types = {part.get_dtype() for part in slices.values()}
        start = safetensors_io.start(path)
        facts = json.loads(metadata or "null")
    except safetensors_io.Unreadable as error:
        raise kind.refuse(path, str(error)) from error
    except (ValueError, RecursionError):
        facts = None
    if not isinstance(facts, dict):
        raise kind.refuse(path, f"it lacks the mark {kind.mark}")
    if types != {"F32"}:
        raise kind.refuse(path, "its numbers are not float32")
    return Contents(facts, shapes, start)
