"""Concatenating tensors into a vector, and splitting a vector, inside graphs."""

from __future__ import annotations

from collections.abc import Sequence

from mindspore import Tensor, ops

Tensors = tuple[Tensor, ...]


def joined(tensors: Tensors, indices: Sequence[int]) -> Tensor:
    """The tensors at these indices as one vector."""
    flat: Tensors = ()
    for index in indices:
        flat = flat + (tensors[index].reshape(-1),)
    return ops.concat(flat)


def parted(vector: Tensor, sizes: Sequence[int]) -> Tensors:
    """A vector split into consecutive slices of these sizes.

    `ops.split` into a hundred parts is too deep for MindSpore's compiler.
    """
    slices: Tensors = ()
    start = 0
    for size in sizes:
        slices = slices + (vector[start : start + size],)
        start = start + size
    return slices
