"""Checkpoints as safetensors: loading one executes nothing, and MindSpore's own loader reads them.

A file holds the network's weights, the optimizer's and the update's state under their parameter names, and in its
header what was counted: update, epoch, samples, seed.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterable
from pathlib import Path

import numpy as np
from mindspore import Parameter, Tensor, ops
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save

from msaccel.errors import CheckpointError, naming

FORMAT = "msaccel-1"


def write(path: Path, parameters: Iterable[Parameter], counters: dict[str, int]) -> None:
    """Writes a checkpoint in one piece: the file is whole or the one before stays.

    Args:
        parameters: everything the next update depends on; names must differ.
        counters: such as update, epoch, samples and seed.

    Raises:
        OSError: it could not be written.
    """
    tensors = {parameter.name: np.array(parameter.asnumpy(), order="C") for parameter in parameters}
    metadata = {FORMAT: json.dumps(counters)}  # one entry: safetensors writes several in no fixed order
    temporary = path.with_suffix(".part")
    try:
        with naming(path), temporary.open("wb") as file:
            file.write(save(tensors, metadata))
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)


def copy(path: Path, to: Path) -> None:
    """A second name for a checkpoint, in one piece too, whatever becomes of the first.

    Raises:
        OSError: it could not be written; what was there stays.
    """
    temporary = to.with_suffix(".part")
    try:
        with naming(to):
            shutil.copyfile(path, temporary)
            os.replace(temporary, to)
    finally:
        temporary.unlink(missing_ok=True)


def read(path: Path, parameters: Iterable[Parameter]) -> dict[str, int]:
    """Loads values into parameters; what else the file holds is left alone.

    Returns:
        The counters it was written with.

    Raises:
        CheckpointError: the file is missing, damaged, or of another network. Nothing is loaded then.
    """
    metadata = read_arrays(path, parameters, FORMAT)
    return {key: int(value) for key, value in json.loads(metadata[FORMAT]).items()}


def read_arrays(path: Path, parameters: Iterable[Parameter], wanted_format: str = "") -> dict[str, str]:
    """Loads values into parameters from any safetensors file that holds them; returns its metadata.

    Raises:
        CheckpointError: as `read`, or its metadata lack the wanted format.
    """
    wanted = list(parameters)
    try:
        with safe_open(path, framework="np") as file:
            metadata: dict[str, str] = file.metadata() or {}
            if wanted_format and wanted_format not in metadata:
                raise CheckpointError(f"{path} is no checkpoint of msaccel; give one that a run has written.")
            names = set(file.keys())
            values = {p.name: file.get_tensor(p.name) for p in wanted if p.name in names}
    except (OSError, SafetensorError) as error:
        raise CheckpointError(f"{path} cannot be read as a checkpoint ({error}); give a whole one.") from error
    for parameter in wanted:
        value = values.get(parameter.name)
        if value is None or value.shape != tuple(parameter.shape):
            found = "missing" if value is None else f"of shape {value.shape}"
            raise CheckpointError(
                f"{path} is of another network: {parameter.name} should have the shape {tuple(parameter.shape)} "
                f"and is {found}; give a checkpoint of this network."
            )
    for parameter in wanted:
        # Not set_data: a graph with control flow that has run once would go on with the memory it knows.
        ops.assign(parameter, Tensor(values[parameter.name], dtype=parameter.dtype))
    return metadata
