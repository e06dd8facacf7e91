"""Sums of gradients over ranks through products of two thin matrices, in the graph."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod

import mindspore as ms
import numpy as np
from mindspore import Parameter, ParameterTuple, Tensor, nn, ops
from numpy.typing import NDArray

from msaccel.kernels.flat import Tensors


def as_matrix(shape: Sequence[int]) -> tuple[int, int]:
    """Rows and columns of a tensor: its first axis and all others."""
    return shape[0], prod(shape[1:])


def saves(shape: Sequence[int], rank: int) -> bool:
    """Whether two factors with `rank` columns are smaller than the tensor."""
    return rank <= largest_rank([shape])


def largest_rank(shapes: Sequence[Sequence[int]]) -> int:
    """The largest rank at which the factors of a tensor are smaller than it; 0: there is none."""
    pairs = [as_matrix(shape) for shape in shapes if len(shape) > 1]
    return max(((n * m - 1) // (n + m) for n, m in pairs), default=0)


def exchanged_numbers(shapes: Sequence[Sequence[int]], rank: int) -> int:
    """How many numbers a rank hands to the others in one sum."""
    return sum(rank * sum(as_matrix(shape)) if saves(shape, rank) else prod(shape) for shape in shapes)


def orthonormal(matrix: Tensor) -> Tensor:
    """Orthonormal columns whose span holds the matrix's, by Householder's reflections; in float64.

    They are orthonormal for every matrix, also of zeros, and NaN where it is not finite.
    """
    return ops.qr(matrix.astype(ms.float64))[0].astype(ms.float32)


class LowRankSum(nn.Cell):
    """Sums gradients over ranks, matrices as P Qᵀ, and says what becomes of errors and directions.

    Args:
        weights: whose gradients they are.
        rank: r, columns of P and Q.
        seed: of the first Q, which all ranks share.
        reduction: makes a cell that sums tensors of the given shapes over real ranks. None: all ranks are virtual ones
            here. A single memory then holds the sum of their errors, which is all that any result depends on.
        processes: that have a memory.

    Attributes:
        errors, directions: E (n, m) and Q (m, r) of each compressed matrix; parameters that this cell does not change.

    Inputs: gradients, this process's share of the sum, a tuple of float32 tensors.
    Outputs: the sums, of the same shapes; the next errors; the next directions.
    """

    def __init__(
        self,
        weights: Sequence[Parameter],
        rank: int,
        seed: int,
        reduction: Callable[[Sequence[Sequence[int]]], nn.Cell] | None,
        processes: int,
    ) -> None:
        super().__init__(auto_prefix=False)
        self.shapes = tuple(tuple(weight.shape) for weight in weights)
        self.compressed = tuple(place for place, shape in enumerate(self.shapes) if saves(shape, rank))
        self.whole = tuple(place for place in range(len(weights)) if place not in self.compressed)
        self.positions = tuple((*self.compressed, *self.whole).index(place) for place in range(len(weights)))
        self.matrices = tuple(as_matrix(self.shapes[place]) for place in self.compressed)
        names = [weights[place].name for place in self.compressed]
        draw = np.random.default_rng(seed).standard_normal
        self.errors = _memory("error", names, [np.zeros(matrix) for matrix in self.matrices])
        self.directions = _memory("q", names, [np.linalg.qr(draw((m, rank)))[0] for _, m in self.matrices])
        self.share = Tensor(1 / processes, ms.float32)
        self.reduce_left = self.reduce_right = None
        if reduction:
            whole = [self.shapes[place] for place in self.whole]
            self.reduce_left = reduction([*((n, rank) for n, _ in self.matrices), *whole])
            self.reduce_right = reduction([(m, rank) for _, m in self.matrices])

    def construct(self, gradients: Tensors) -> tuple[Tensors, Tensors, Tensors]:
        matrices: Tensors = ()
        left: Tensors = ()
        for i in range(len(self.matrices)):
            matrix = gradients[self.compressed[i]].reshape(self.matrices[i]) + self.errors[i]
            matrices = matrices + (matrix,)
            left = left + (ops.matmul(matrix, self.directions[i]),)
        for place in self.whole:
            left = left + (gradients[place],)
        if self.reduce_left is not None:
            left = self.reduce_left(left)

        bases: Tensors = ()
        right: Tensors = ()
        for i in range(len(self.matrices)):
            bases = bases + (orthonormal(left[i]),)
            right = right + (ops.matmul(matrices[i].T, bases[i]),)
        if self.reduce_right is not None:
            right = self.reduce_right(ops.depend(right, left[-1]))  # after all others: on every rank in the same order

        products: Tensors = ()
        errors: Tensors = ()
        directions: Tensors = ()
        for i in range(len(self.matrices)):
            product = ops.matmul(bases[i], right[i].T)
            products = products + (product,)
            errors = errors + (matrices[i] - self.share * product,)
            # A direction in which there was nothing at all, as in the gradient of a layer behind zeros, waits.
            nothing = ops.equal(ops.abs(right[i]).sum(0, keepdims=True), 0).astype(ms.float32)
            directions = directions + (orthonormal(right[i] + nothing * self.directions[i]),)
        summed = products + left[len(self.matrices) :]
        sums: Tensors = ()
        for i in range(len(self.shapes)):
            sums = sums + (summed[self.positions[i]].reshape(self.shapes[i]),)
        return sums, errors, directions


def _memory(kind: str, names: Sequence[str], values: Sequence[NDArray[np.float64]]) -> ParameterTuple:
    pairs = zip(names, values, strict=True)
    return ParameterTuple(
        [
            Parameter(Tensor(value, ms.float32), name=f"powersgd.{kind}.{name}", requires_grad=False)
            for name, value in pairs
        ]
    )
