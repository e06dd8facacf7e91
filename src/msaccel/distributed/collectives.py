"""Collectives inside graphs: gradients reduced in buckets, and tensors gathered within a group of ranks.

MindSpore's CPU has AllReduce (float32, float16; also in groups), AllGather (whole world only) and Broadcast; neither
Send nor ReduceScatter. So a gather within a group is a sum of vectors that are zero except at the rank's own position:
exact, with twice the traffic of a gather, on every device.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from mindspore import Tensor, nn, ops
from mindspore.communication import create_group

from msaccel.kernels.flat import Split, Tensors, joined

BYTES = 4  # of a float32


def group(ranks: Sequence[int]) -> str:
    """The name of a new group of these ranks. All of them must call it, in the same order as for other groups."""
    name = f"ranks_{'_'.join(map(str, ranks))}"
    create_group(name, list(ranks))
    return name


def buckets(sizes: Sequence[int], bucket_mb: float) -> list[list[int]]:
    """Which tensors are reduced together: neighbours, up to `bucket_mb` MB (10⁶ bytes) of float32 or a single one."""
    limit, filled = bucket_mb * 1e6 / BYTES, 0
    result: list[list[int]] = []
    for place, size in enumerate(sizes):
        if result and filled + size <= limit:
            result[-1].append(place)
            filled += size
        else:
            result.append([place])
            filled = size
    return result


class _Bucket(nn.Cell):
    """Sums some of the tensors.

    Inputs: all tensors; a dependency token that orders the all-reduces. Outputs: the sums of its own tensors.
    """

    def __init__(self, places: Sequence[int], shapes: Sequence[Sequence[int]], name: str | None) -> None:
        super().__init__(auto_prefix=False)
        self.begin, self.end = places[0], places[-1] + 1
        self.split = Split([shapes[place] for place in places])
        self.all_reduce = ops.AllReduce() if name is None else ops.AllReduce(group=name)

    def construct(self, tensors: Tensors, token: Tensor) -> Tensors:
        sums: Tensors = self.split(self.all_reduce(ops.depend(joined(tensors[self.begin : self.end]), token)))
        return sums


class Reduce(nn.Cell):
    """Sums float32 tensors over ranks.

    Args:
        shapes: of the tensors.
        bucket_mb: tensors are joined to vectors of at most this size (10⁶ bytes); 0: each goes by itself.
        name: of a group; None for all ranks.

    Inputs: a tuple of tensors. Outputs: their sums, the same bits on every rank.
    """

    def __init__(self, shapes: Sequence[Sequence[int]], bucket_mb: float, name: str | None = None) -> None:
        super().__init__(auto_prefix=False)
        filled = buckets([prod(shape) for shape in shapes], bucket_mb)
        self.buckets = nn.CellList([_Bucket(places, shapes, name) for places in filled])

    def construct(self, tensors: Tensors) -> Tensors:
        sums: Tensors = ()
        token = tensors[0]
        for bucket in self.buckets:
            sums = sums + bucket(tensors, token)  # one after the other: on every rank in the same order
            token = sums[-1]
        return sums


class Gather(nn.Cell):
    """Gathers vectors of one length within a group.

    Args:
        ranks: of the group, in the order of the result.
        rank: which of them this process is.

    Inputs: a vector (n,), float32. Outputs: (len(ranks), n), the same bits on every rank of the group.
    """

    def __init__(self, ranks: Sequence[int], rank: int) -> None:
        super().__init__(auto_prefix=False)
        self.before = list(ranks).index(rank)
        self.after = len(ranks) - 1 - self.before
        self.all_reduce = ops.AllReduce(group=group(ranks))

    def construct(self, vector: Tensor) -> Tensor:
        nothing = ops.zeros_like(vector)
        places: Tensors = ()
        for _ in range(self.before):
            places = places + (nothing,)
        places = places + (vector,)
        for _ in range(self.after):
            places = places + (nothing,)
        return self.all_reduce(ops.concat(places)).reshape(self.before + 1 + self.after, -1)


class GatherNorms(nn.Cell):
    """Gathers the norms of all parts (parts,) from each rank's norm of its part (1,); a part is neighbouring ranks."""

    def __init__(self, parts: int) -> None:
        super().__init__(auto_prefix=False)
        self.parts = parts
        self.gather = ops.AllGather()

    def construct(self, norm: Tensor) -> Tensor:
        return self.gather(norm).reshape(self.parts, -1)[:, 0]
