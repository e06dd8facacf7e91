"""Vectors that two ranks hand each other inside a graph, on one server over a TCP connection of their own.

MindSpore's CPU has neither Send nor Receive. Its sum of two vectors that are zero outside their own half
(`collectives.Gather`) moves at least twice as many bytes, and adds them up.
"""

from __future__ import annotations

import select
import socket

import numpy as np
from mindspore import Tensor, nn, ops
from numpy.typing import NDArray

from msaccel.distributed.barrier import GONE
from msaccel.distributed.collectives import Gather
from msaccel.distributed.communicator import Communicator
from msaccel.errors import TrainingError
from msaccel.schema import DeviceSettings

_SECONDS = 30.0  # without a byte; MindSpore's collectives wait as long for a rank


def pair(comm: Communicator, partner: int, device: DeviceSettings) -> nn.Cell:
    """Gathers the vectors of this rank and its partner, in rank order: (n,), float32, to (2, n), alike on both.

    All ranks must call it at once, each pair for each other.
    """
    servers = {rank // device.ranks_per_server for rank in (comm.rank, partner)}
    if device.target == "CPU" and len(servers) == 1:
        return Exchange(comm.connect(partner), first=comm.rank < partner)
    return Gather(sorted((comm.rank, partner)), comm.rank)


class Exchange(nn.Cell):
    """Gathers the vectors of two ranks.

    Args:
        connection: to the other rank.
        first: whether this rank's vector is the first of the result.

    Inputs: a vector (n,), float32. Outputs: (2, n), the same bits on both ranks.
    """

    def __init__(self, connection: socket.socket, first: bool) -> None:
        super().__init__(auto_prefix=False)
        connection.setblocking(False)

        def gather(vector: NDArray[np.float32]) -> NDArray[np.float32]:
            rows = np.empty((2, len(vector)), np.float32)
            own, theirs = rows if first else rows[::-1]
            own[:] = vector
            swap(connection, memoryview(own).cast("B"), memoryview(theirs).cast("B"))
            return rows

        self.gather = ops.Custom(gather, lambda shape: (2, *shape), lambda dtype: dtype, func_type="pyfunc")

    def construct(self, vector: Tensor) -> Tensor:
        return self.gather(vector)


def swap(connection: socket.socket, own: memoryview, theirs: memoryview) -> None:
    """Sends `own` and fills `theirs` with what the other end sends, both at the same time.

    Raises:
        TrainingError: the other end is gone, or neither sent nor took a byte for 30 seconds.
    """
    while own or theirs:
        readable, writable, _ = select.select([connection] * bool(theirs), [connection] * bool(own), [], _SECONDS)
        try:
            if readable:
                count = connection.recv_into(theirs)
                if not count:
                    raise ConnectionError("closed")
                theirs = theirs[count:]
            if writable:
                own = own[connection.send(own) :]
        except BlockingIOError:
            continue
        except OSError as error:
            raise TrainingError(GONE) from error
        if not readable and not writable:
            raise TrainingError(GONE)
