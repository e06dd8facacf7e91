"""Weights and optimizer state of each rank: exchanged between virtual ranks, averaged over real or virtual ones."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import mindspore as ms
import numpy as np
from mindspore import Parameter, ParameterTuple, Tensor, nn, ops
from numpy.typing import NDArray

from msaccel.checkpoint.state import State, array_like
from msaccel.kernels.flat import Tensors
from msaccel.kernels.graph import Graph
from msaccel.step.flat_parameters import Flatten, Place

Group = list[Parameter]


def moments(optimizer: nn.Optimizer) -> list[Group]:
    """What an optimizer keeps for each weight, such as `moments.NAME`: for each kind a group of their shapes."""
    weights = list(optimizer.parameters)
    held = {parameter.name: parameter for parameter in optimizer.get_parameters()}
    end = f".{weights[0].name}"
    kinds = [name.removesuffix(end) for name in held if name.endswith(end)]
    groups = [[held.get(f"{kind}.{weight.name}") for weight in weights] for kind in kinds]
    shapes = [weight.shape for weight in weights]
    return [group for group in groups if [getattr(state, "shape", None) for state in group] == shapes]


def counters(optimizer: nn.Optimizer, groups: Sequence[Group]) -> Group:
    """An optimizer's other float32 parameters, such as powers of β; not `global_step`, which nothing here uses."""
    known = {parameter.name for group in groups for parameter in group}
    return [p for p in optimizer.get_parameters() if p.name not in known and p.dtype == ms.float32]


class AverageOverRanks(Graph):
    """Sets parameters to their means over real ranks: the same bits on each."""

    def __init__(self, parameters: Group, reduce: nn.Cell, ranks: int) -> None:
        super().__init__()
        self.parameters, self.reduce = ParameterTuple(parameters), reduce
        self.ranks = Tensor(ranks, ms.float32)

    def construct(self) -> Tensor:
        sums = self.reduce(self.parameters)
        for i in range(len(self.parameters)):
            ops.assign(self.parameters[i], sums[i] / self.ranks)
        return self.ranks


class RankStates:
    """The weights and the optimizer state of the ranks of this process.

    A real rank has its own network and optimizer. Virtual ranks share these: from `separate` on, the state of each is
    stored aside and put into network and optimizer for its turn.

    Args:
        optimizer: over the network's trainable parameters.
        ranks: of the job.
        average_state: whether the optimizer's moments are averaged too.
        reduce: sums tensors of the weights' shapes over real ranks; None: all ranks are virtual ones here.
    """

    def __init__(self, optimizer: nn.Optimizer, ranks: int, average_state: bool, reduce: nn.Cell | None) -> None:
        weights = list(optimizer.parameters)
        shaped = [weights, *moments(optimizer)]
        averaged = len(shaped) if average_state else 1
        self.ranks, self.averaged_groups, self.real = ranks, range(averaged), reduce is not None
        self.separated = False
        groups = [weights] if self.real else [*shaped, counters(optimizer, shaped)]
        self.flat, self.put = [Flatten(group) for group in groups], [Place(group) for group in groups]
        self.averages = [AverageOverRanks(group, reduce, ranks) for group in shaped[:averaged] if reduce is not None]
        self.own: dict[int, Tensors] = {}  # for each virtual rank a vector for each group

    def compile(self) -> None:
        """Builds the graphs, without running them."""
        for flat, put in zip(self.flat, self.put, strict=True):
            flat.compile()
            put.compile(Tensor(np.zeros(sum(parameter.size for parameter in put.parameters), np.float32)))
        for average in self.averages:
            average.compile()

    def separate(self) -> None:
        """Gives each rank a state of its own from here on; all begin with what network and optimizer hold."""
        self.separated = True
        if not self.real:
            self.own = dict.fromkeys(range(self.ranks), self._values())

    def _values(self) -> Tensors:
        return tuple(flat() for flat in self.flat)

    def place(self, rank: int) -> None:
        """Puts this rank's state into network and optimizer."""
        if not self.real:
            for put, own in zip(self.put, self.own[rank], strict=True):
                put(own)

    @contextmanager
    def of(self, rank: int) -> Iterator[None]:
        """Inside the block network and optimizer have this rank's state, and changes to it are kept for this rank."""
        self.place(rank)
        try:
            yield
        finally:
            if not self.real:
                self.own[rank] = self._values()

    def average(self) -> None:
        """Gives all ranks the mean of their weights and, if they are averaged, of their moments."""
        if self.real:
            for average in self.averages:
                average()
        else:
            means = {group: Tensor(self._mean(group)) for group in self.averaged_groups}
            self.own = {
                rank: tuple(means.get(group, value) for group, value in enumerate(own))
                for rank, own in self.own.items()
            }

    def _mean(self, group: int) -> NDArray[np.float32]:
        """Over virtual ranks, summed in float64 in their order."""
        total = sum(own[group].asnumpy().astype(np.float64) for own in self.own.values())
        return np.asarray(total / self.ranks, np.float32)

    @contextmanager
    def averaged(self) -> Iterator[None]:
        """Inside the block the network has the mean of all ranks' weights; afterwards each rank has its own again.

        Inside, the optimizer has the state of the first rank of this process, and `state_dict` is empty.
        """
        if not self.separated:
            yield
        elif self.real:
            own = self.flat[0]()
            self.averages[0]()
            try:
                yield
            finally:
                self.put[0](own)
        else:
            own_of_ranks = self.own
            self.place(0)
            self.put[0](Tensor(self._mean(0)))
            self.own = {}
            try:
                yield
            finally:
                self.own = own_of_ranks

    def state_dict(self) -> State:
        """The states of virtual ranks that are stored aside: for each group (ranks, S)."""
        each = zip(*self.own.values(), strict=True)
        return {f"ranks.{group}": np.stack([own.asnumpy() for own in values]) for group, values in enumerate(each)}

    def load_state_dict(self, state: State) -> None:
        """Restores what `state_dict` returned, after `separate` has been called if it had been called then.

        Raises:
            CheckpointError: it belongs to another network or number of ranks.
        """
        found = [array_like(state, name, like) for name, like in self.state_dict().items()]
        self.own = {rank: tuple(Tensor(group[rank]) for group in found) for rank in self.own}
