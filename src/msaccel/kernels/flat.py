"""Tensors as one vector, and a vector as pieces, inside graphs."""

from __future__ import annotations

from collections.abc import Sequence

from mindspore import Tensor, ops

Tensors = tuple[Tensor, ...]


def joined(tensors: Tensors, places: Sequence[int]) -> Tensor:
    """Some of the tensors as one vector."""
    flat: Tensors = ()
    for place in places:
        flat = flat + (tensors[place].reshape(-1),)
    return ops.concat(flat)


def parted(vector: Tensor, sizes: Sequence[int]) -> Tensors:
    """Pieces of a vector, one after the other.

    Slices, since `ops.split` into a hundred pieces is too deep for MindSpore's compiler.
    """
    pieces: Tensors = ()
    start = 0
    for size in sizes:
        pieces = pieces + (vector[start : start + size],)
        start = start + size
    return pieces
