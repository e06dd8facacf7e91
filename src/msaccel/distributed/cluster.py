"""The communicator of a job of several processes, on MindSpore's collectives."""

from __future__ import annotations

import os
import socket

import numpy as np
from mindspore import Tensor, communication, nn, ops
from numpy.typing import NDArray

from msaccel import schema
from msaccel.distributed import barrier, handshake
from msaccel.distributed.barrier import Barrier
from msaccel.distributed.communicator import Communicator
from msaccel.errors import TrainingError

BACKENDS = {"CPU": "mccl", "GPU": "nccl", "Ascend": "hccl"}


class _Collective(nn.Cell):
    """One collective as a graph. Inputs and outputs: a vector."""

    def __init__(self, collective: nn.Cell) -> None:
        super().__init__(auto_prefix=False)
        self.collective = collective

    def construct(self, values: Tensor) -> Tensor:
        return self.collective(values)


class _Broadcast(nn.Cell):
    def __init__(self) -> None:
        super().__init__(auto_prefix=False)
        self.collective = ops.Broadcast(0)

    def construct(self, values: Tensor) -> Tensor:
        return self.collective((values,))[0]


class Cluster(Communicator):
    """One of the ranks that the launcher has started for this job.

    Raises:
        TrainingError: the number of ranks is not that of the topology.
    """

    def __init__(self, device: schema.DeviceSettings) -> None:
        communication.init(BACKENDS[device.target])
        self.rank, self.world_size = communication.get_rank(), communication.get_group_size()
        if self.world_size != device.ranks:
            raise TrainingError(
                f"{self.world_size} ranks came together and device={device.name} has {device.ranks}; "
                "start the same command on every server."
            )
        self._gather, self._reduce, self._broadcast = (
            _Collective(ops.AllGather()),
            _Collective(ops.AllReduce()),
            _Broadcast(),
        )
        host = os.environ["MSACCEL_HOST"]
        connections = self._connections(host, 0, self.world_size - 1)
        self._barrier = Barrier(connections, first=self.is_main)

    def _connections(self, host: str, listening: int, count: int) -> list[socket.socket]:
        """Connections between the rank that listens at a host and so many others. All ranks must call it at once.

        Args:
            listening: the rank that this one connects to; this one itself if it listens.
        """
        token = os.environ[handshake.VARIABLE]
        listener = barrier.listen(host) if listening == self.rank else None
        own = listener.getsockname()[1] if listener else 0
        ports = self.all_gather(np.array([own], np.int64))[:, 0]
        if listener:
            return barrier.accept(listener, count, token)
        return [barrier.connect(host, int(ports[listening]), token)]

    def connect(self, partner: int) -> socket.socket:
        return self._connections("127.0.0.1", min(self.rank, partner), 1)[0]

    def all_gather(self, values: NDArray[np.generic]) -> NDArray[np.generic]:
        # As 32-bit words: on a CPU AllGather takes 64-bit types too, and rounds them to 32 bits on the way.
        words = np.frombuffer(np.ascontiguousarray(values).tobytes(), np.int32)
        stacked: NDArray[np.int32] = self._gather(Tensor(words)).asnumpy()
        return np.frombuffer(stacked.tobytes(), values.dtype).reshape(self.world_size, *values.shape)

    def all_reduce(self, values: NDArray[np.float32]) -> NDArray[np.float32]:
        return self._reduce(Tensor(values)).asnumpy()

    def broadcast(self, values: NDArray[np.float32]) -> NDArray[np.float32]:
        return self._broadcast(Tensor(np.ascontiguousarray(values))).asnumpy()

    def barrier(self) -> None:
        self._barrier.wait()
