"""The running statistics of batch normalisation, one set for each rank.

Every rank, virtual or real, updates its own set in each of its forward passes. For an evaluation or a checkpoint the
sets are averaged over ranks; afterwards each rank continues with its own. Virtual ranks share one network, so their
sets are swapped in and out around each rank's window.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager

import mindspore as ms
import numpy as np
from mindspore import Parameter, Tensor, nn
from numpy.typing import NDArray

from msaccel.checkpoint.state import State, array_like
from msaccel.distributed.communicator import Communicator
from msaccel.step.flat_parameters import Flatten, Place


class RunningStatistics:
    """The running statistics of a network, one set for each rank of this process; does nothing if the network has none.

    Args:
        network: its parameters without gradients are the statistics.
        ranks: the ranks of this process.
        comm: all ranks of the job.
    """

    def __init__(self, network: nn.Cell, ranks: Sequence[int], comm: Communicator) -> None:
        statistics: list[Parameter] = network.untrainable_params()
        self.comm = comm
        self.any = bool(statistics)
        self.shared = len(ranks) > 1
        if self.any:
            self.flat, self.place = Flatten(statistics), Place(statistics)
            start = self.flat()
            self.place.compile(start)  # not first in an update, whose time is measured
            norms = [
                cell for _, cell in network.cells_and_names() if isinstance(cell, (nn.BatchNorm1d, nn.BatchNorm2d))
            ]
            of_batch = {id(own): norm.momentum for norm in norms for own in (norm.moving_mean, norm.moving_variance)}
            # The weight of a batch in the statistics that it updates (S,); 0 for parameters that are not statistics.
            self.shares = np.concatenate([np.full(value.size, of_batch.get(id(value), 0.0)) for value in statistics])
            self.own: dict[int, Tensor] = dict.fromkeys(ranks, start)

    def state_dict(self) -> State:
        """The sets of virtual ranks (ranks, S); empty for a rank alone in its process, whose set is in its network."""
        return {"own": np.stack([own.asnumpy() for own in self.own.values()])} if self.any and self.shared else {}

    def load_state_dict(self, state: State) -> None:
        """Restores what `state_dict` returned.

        Raises:
            CheckpointError: it belongs to another network or number of ranks.
        """
        for name, like in self.state_dict().items():
            self.own = dict(zip(self.own, map(Tensor, array_like(state, name, like)), strict=True))

    def begin_anew(self) -> None:
        """Gives every rank of this process the statistics that the network holds."""
        if self.any:
            self.own = dict.fromkeys(self.own, self.flat())

    @contextmanager
    def of(self, rank: int) -> Iterator[None]:
        """Inside the block the network holds this rank's statistics, and changes to them are kept for this rank."""
        if self.any and self.shared:
            self.place(self.own[rank])
        try:
            yield
        finally:
            if self.any and self.shared:
                self.own[rank] = self.flat()

    @contextmanager
    def untouched(self) -> Iterator[None]:
        """Restores all statistics after the block, whatever forward passes inside it did to them."""
        if not self.any:
            yield
            return
        before, own = self.flat(), dict(self.own)
        try:
            yield
        finally:
            self.place(before)
            self.own = own

    @contextmanager
    def averaged(self) -> Iterator[None]:
        """Inside the block the network holds the mean over all ranks; afterwards each rank has its own again."""
        with self.untouched():
            if self.any:
                self.place(Tensor(self.mean(), ms.float32))
            yield

    @contextmanager
    def measured_anew(self, batches: Iterable[tuple[Tensor, Tensor]], forward: nn.Cell) -> Iterator[None]:
        """Inside the block the network holds statistics averaged over these batches; afterwards its own again.

        Args:
            batches: this process's images and labels.
            forward: a pass of a batch through the network in training mode.
        """
        if not self.any:
            yield
            return
        with self.untouched():
            before = self.flat().asnumpy()
            cleared = Tensor(np.where(self.shares, 0, before).astype(np.float32))
            sums = np.zeros(len(before) + 1)  # of what batches add; the last element counts them
            for batch in batches:
                self.place(cleared)
                forward(*batch)
                sums += np.append(self.flat().asnumpy(), 1)
            self.comm.barrier()  # compiling may take longer than a collective waits
            totals = self.comm.all_sum(sums)
            means = totals[:-1] / totals[-1] / np.where(self.shares, self.shares, 1)
            self.place(Tensor(means.astype(np.float32)))
            self.begin_anew()
            yield

    def mean(self) -> NDArray[np.float64]:
        """The mean over all ranks (S,), summed in float64 in the order of ranks."""
        values = list(self.own.values()) if self.shared else [self.flat()]
        own = np.sum([value.asnumpy().astype(np.float64) for value in values], axis=0)
        return self.comm.all_sum(own) / (len(values) * self.comm.world_size)
