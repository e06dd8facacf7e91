"""Adasum between processes: every level of the recursion is an exchange between two halves.

The ranks of a part hold the same tensors. Each of them handles a shard of whole tensors, balanced by size, which it
combines with the rank of the same place in the other parts; then the part's ranks gather their shards. At level l a
part exchanges with the one whose number differs in bit l, so that contiguous blocks of 2^l parts are combined in the
order of ranks. Both sides compute the same from the same inputs, so the weights stay equal bit for bit.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from mindspore import Tensor, nn, ops

from msaccel.distributed.collectives import BYTES, Gather
from msaccel.distributed.communicator import Communicator
from msaccel.distributed.exchange import pair
from msaccel.kernels import AdasumRows
from msaccel.kernels.flat import Split, Tensors, joined
from msaccel.schema import DeviceSettings


def shards(sizes: Sequence[int], count: int) -> list[list[int]]:
    """Deals whole tensors to `count` ranks, largest first, each to the rank with the least; a rank may get none."""
    dealt: list[list[int]] = [[] for _ in range(count)]
    load = [0] * count
    for place in sorted(range(len(sizes)), key=lambda place: (-sizes[place], place)):
        least = load.index(min(load))
        dealt[least].append(place)
        load[least] += sizes[place]
    return [sorted(places) for places in dealt]


def bytes_exchanged(sizes: Sequence[int], parts: int, ranks: int) -> int:
    """Bytes that the rank with the largest shard hands to others, the mean inside its part included.

    Args:
        sizes: of the tensors.
        parts: their number.
        ranks: of each part.
    """
    shard = max(sum(sizes[tensor] for tensor in places) for places in shards(sizes, ranks))
    inside = sum(sizes) + shard if ranks > 1 else 0
    return BYTES * (inside + (parts.bit_length() - 1) * shard)


class AdasumAllReduce(nn.Cell):
    """Adasum over all parts.

    Args:
        shapes: of the tensors.
        parts: the ranks of each part; a power of two of parts, equally large.
        comm: of this process.
        device: its ranks.

    Inputs: the tensors of this rank's part, float32. Outputs: the combined ones, the same bits on every rank.
    """

    def __init__(
        self,
        shapes: Sequence[Sequence[int]],
        parts: Sequence[Sequence[int]],
        comm: Communicator,
        device: DeviceSettings,
    ) -> None:
        super().__init__(auto_prefix=False)
        rank = comm.rank
        sizes = [prod(shape) for shape in shapes]
        part, place = next((p, ranks.index(rank)) for p, ranks in enumerate(map(list, parts)) if rank in ranks)
        dealt = shards(sizes, len(parts[part]))
        self.own = tuple(dealt[place])
        own_sizes = [sizes[tensor] for tensor in self.own]
        self.own_total = sum(own_sizes)
        self.combined = AdasumRows(own_sizes)
        levels = range(len(parts).bit_length() - 1)
        self.levels = nn.CellList([pair(comm, parts[part ^ 1 << level][place], device) for level in levels])
        self.inside = Gather(parts[part], rank) if len(parts[part]) > 1 else None
        totals = [sum(sizes[tensor] for tensor in places) for places in dealt]
        self.width = max(totals)
        self.padding = self.width - totals[place]
        permutation = [tensor for places in dealt for tensor in places]
        self.permutation = tuple(permutation.index(tensor) for tensor in range(len(permutation)))
        self.split = nn.CellList([Split([shapes[tensor] for tensor in places]) for places in dealt])
        self.totals = tuple(totals)

    def construct(self, *tensors: Tensor) -> Tensors:
        vector = ops.zeros(1)
        if self.own_total > 0:
            own: Tensors = ()
            for tensor in self.own:
                own = own + (tensors[tensor],)
            vector = joined(own)
            for level in self.levels:
                vector = self.combined(level(vector))
        return self.split[0](vector) if self.inside is None else self.from_ranks(self.inside, vector)

    def from_ranks(self, inside: nn.Cell, vector: Tensor) -> Tensors:
        """All tensors, from the shards of the part's ranks, each padded to the same length."""
        if self.own_total == 0:
            vector = ops.zeros(self.width)
        elif self.padding > 0:
            vector = ops.concat((vector, ops.zeros(self.padding)))
        rows = inside(vector)
        parts: Tensors = ()
        for number in range(len(self.totals)):
            if self.totals[number] > 0:
                parts = parts + self.split[number](rows[number][: self.totals[number]])
        result: Tensors = ()
        for place in self.permutation:
            result = result + (parts[place],)
        return result
