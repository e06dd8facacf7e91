"""Checkpoints as safetensors: loading one executes nothing, and MindSpore's own loader reads them.

A file holds the network's weights and the state of optimizer and update under their parameter names, and in its header
counters: update, epoch, samples, seed.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import mindspore as ms
import numpy as np
from mindspore import Parameter

from msaccel.checkpoint import safetensors_io
from msaccel.checkpoint.state import set_values
from msaccel.errors import CheckpointError
from msaccel.files import atomic_write

FORMAT = "msaccel-1"


def write(path: Path, parameters: Iterable[Parameter], counters: dict[str, int]) -> None:
    """Writes a checkpoint atomically: either the new file is complete or the old one stays.

    Args:
        parameters: everything the next update depends on; names must differ.
        counters: such as update, epoch, samples and seed.

    Raises:
        OSError: it could not be written.
    """
    arrays = [(parameter.name, parameter.asnumpy()) for parameter in parameters]
    arrays.sort(key=lambda one: -one[1].itemsize)  # so that each begins at a multiple of its size
    with atomic_write(path) as file:
        file.writelines(safetensors_io.pieces(dict(arrays), FORMAT, counters))


def copy(path: Path, to: Path) -> None:
    """Gives a checkpoint a second name, atomically; the second stays whatever happens to the first.

    Raises:
        OSError: it could not be written; what was there stays.
    """
    with path.open("rb") as source, atomic_write(to) as file:
        shutil.copyfileobj(source, file)


def read(path: Path, parameters: Iterable[Parameter], *, marked: bool = True) -> dict[str, int]:
    """Loads values into parameters; what else the file holds is left alone.

    Args:
        marked: whether it must be a checkpoint that `write` wrote; else any safetensors file with these values will do.

    Returns:
        The counters it was written with; none unless `marked`.

    Raises:
        CheckpointError: the file is missing, damaged, or of another network. Nothing is loaded then.
    """
    wanted = list(parameters)
    try:
        with safetensors_io.opened(path) as file:
            counters = _counters(path, file.metadata() or {}) if marked else {}
            names = set(file.keys())
            # Values of another shape or type are not read: they could take any amount of memory.
            differ = {p.name: _difference(file, p) if p.name in names else "is missing" for p in wanted}
            if name := next(filter(differ.get, differ), None):
                raise CheckpointError(
                    f"{path} is of another network: {name} {differ[name]}; give a checkpoint of this network."
                )
            values = {p.name: file.get_tensor(p.name) for p in wanted}
    except safetensors_io.Unreadable as error:
        raise CheckpointError(f"{path} cannot be read as a checkpoint ({error}); give a whole one.") from error
    set_values(wanted, values)
    return counters


def _difference(file: Any, parameter: Parameter) -> str:
    """What is wrong with a parameter's values in a file; empty if nothing is."""
    part = file.get_slice(parameter.name)
    shape, kind = tuple(part.get_shape()), part.get_dtype()
    kind_of = np.dtype(ms.dtype_to_nptype(parameter.dtype)).name
    wanted = tuple(parameter.shape), safetensors_io.DTYPES[kind_of]
    if (shape, kind) == wanted:
        return ""
    return f"should have the shape {wanted[0]} of {wanted[1]} and has {shape} of {kind}"


def _counters(path: Path, metadata: dict[str, str]) -> dict[str, int]:
    try:
        counters = json.loads(metadata[FORMAT])
        return {key: int(value) for key, value in counters.items()}
    except (KeyError, ValueError, TypeError, AttributeError, OverflowError, RecursionError) as error:
        raise CheckpointError(f"{path} is no checkpoint of msaccel; give one that a run has written.") from error
