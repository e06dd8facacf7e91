"""A process as one of many ranks that exchange values through MindSpore's collectives."""

from __future__ import annotations

import os

import numpy as np
from mindspore import Tensor, communication, nn, ops
from numpy.typing import NDArray

from msaccel import schema
from msaccel.distributed.barrier import Meeting
from msaccel.distributed.communicator import Ranks
from msaccel.errors import TrainingError

BACKENDS = {"CPU": "mccl", "GPU": "nccl", "Ascend": "hccl"}


class _Call(nn.Cell):
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


class Cluster(Ranks):
    """One of the ranks that the launcher has started for this job.

    Raises:
        TrainingError: another number of ranks came together than the topology has.
    """

    def __init__(self, device: schema.Device) -> None:
        communication.init(BACKENDS[device.target])
        self.rank, self.count = communication.get_rank(), communication.get_group_size()
        if self.count != device.ranks:
            raise TrainingError(
                f"{self.count} ranks came together and device={device.name} has {device.ranks}; "
                "start the same command on every server."
            )
        self._gather, self._reduce, self._broadcast = _Call(ops.AllGather()), _Call(ops.AllReduce()), _Broadcast()
        self._meeting = self._meet(os.environ["MSACCEL_HOST"])

    def _meet(self, host: str) -> Meeting:
        listener = Meeting.listen(host) if self.first else None
        own = listener.getsockname()[1] if listener else 0
        port = int(self.gather(np.array([own], np.int64))[0, 0])
        return Meeting.accept(listener, self.count - 1) if listener else Meeting.connect(host, port)

    def gather(self, values: NDArray[np.generic]) -> NDArray[np.generic]:
        # As 32-bit words: on a CPU AllGather takes 64-bit types too, and rounds them to 32 bits on the way.
        words = np.frombuffer(np.ascontiguousarray(values).tobytes(), np.int32)
        everything: NDArray[np.int32] = self._gather(Tensor(words)).asnumpy()
        return np.frombuffer(everything.tobytes(), values.dtype).reshape(self.count, *values.shape)

    def reduce(self, values: NDArray[np.float32]) -> NDArray[np.float32]:
        return self._reduce(Tensor(values)).asnumpy()

    def broadcast(self, values: NDArray[np.float32]) -> NDArray[np.float32]:
        return self._broadcast(Tensor(np.ascontiguousarray(values))).asnumpy()

    def wait(self) -> None:
        self._meeting.wait()
