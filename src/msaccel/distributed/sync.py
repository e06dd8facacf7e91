"""Parameters that all ranks share: broadcast at the start, and compared."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import numpy as np
from mindspore import Parameter, Tensor, ops

from msaccel.distributed.communicator import Communicator
from msaccel.errors import TrainingError


def broadcast_parameters(comm: Communicator, parameters: Sequence[Parameter]) -> None:
    """Gives all ranks the first one's values of float32 parameters."""
    if comm.world_size == 1:
        return
    for parameter in parameters:
        values = comm.broadcast(parameter.asnumpy().reshape(-1)).reshape(parameter.shape)
        # Not set_data: a graph with control flow that has run once would keep using the old memory.
        ops.assign(parameter, Tensor(values, parameter.dtype))


def digest(parameters: Sequence[Parameter]) -> int:
    """64 bits of the SHA-256 of all values."""
    found = hashlib.sha256()
    for parameter in parameters:
        found.update(np.ascontiguousarray(parameter.asnumpy()).tobytes())
    return int.from_bytes(found.digest()[:8], "little", signed=True)


def must_agree(comm: Communicator, parameters: Sequence[Parameter], where: str) -> None:
    """Compares the weights of all ranks, bit for bit.

    Raises:
        TrainingError: they differ.
    """
    if comm.world_size == 1:
        return
    if others := comm.differ([digest(parameters)]):
        raise TrainingError(
            f"the weights of rank {', '.join(map(str, others))} differ from those of rank 0 {where}; "
            "report it with the command, since this must never happen."
        )
