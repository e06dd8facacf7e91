"""Parameters that all ranks share: broadcast at the start, and compared."""

from __future__ import annotations

from collections.abc import Sequence

from mindspore import Parameter, Tensor, ops

from msaccel.distributed.communicator import Communicator, digest
from msaccel.errors import TrainingError


def broadcast_parameters(comm: Communicator, parameters: Sequence[Parameter]) -> None:
    """Gives all ranks the first one's values of float32 parameters."""
    if comm.world_size == 1:
        return
    for parameter in parameters:
        values = comm.broadcast(parameter.asnumpy().reshape(-1)).reshape(parameter.shape)
        # Not set_data: a graph with control flow that has run once would keep using the old memory.
        ops.assign(parameter, Tensor(values, parameter.dtype))


def must_agree(comm: Communicator, parameters: Sequence[Parameter], where: str) -> None:
    """Compares the weights of all ranks, bit for bit.

    Raises:
        TrainingError: they differ.
    """
    if comm.world_size == 1:
        return
    if others := comm.differ([digest(parameter.asnumpy() for parameter in parameters)]):
        raise TrainingError(
            f"the weights of rank {', '.join(map(str, others))} differ from those of rank 0 {where}; "
            "report it with the command, since this must never happen."
        )
