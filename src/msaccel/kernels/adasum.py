"""Adasum of two sets of tensors, and the steps before and after it, each in one operator.

What steps writes weights where they lie, and MindSpore's graph does not know that it does: what reads them before or
after, in the same graph, must be in an order by `ops.depend`.
"""

from __future__ import annotations

from collections.abc import Sequence

import mindspore as ms
from mindspore import ParameterTuple, Tensor, nn, ops

from msaccel.kernels.backend import chosen
from msaccel.kernels.custom_op import ONE, operator
from msaccel.kernels.flat import Tensors, parted
from msaccel.kernels.graph import Graph


def _half(*inputs: object) -> tuple[object, ...]:
    return inputs[: len(inputs) // 2]


class Pair(Graph):
    """Adasum of two sets of tensors. Inputs: those of a, then those of b, float32. Outputs: the combined ones."""

    def __init__(self) -> None:
        super().__init__()
        self.ours = chosen().library is not None
        if self.ours:
            self.combine = operator("adasum", _half, _half)

    def construct(self, *tensors: Tensor) -> Tensors:
        if self.ours:
            return self.combine(*tensors)
        half = len(tensors) // 2
        combined: Tensors = ()
        for i in range(half):
            combined = combined + (_adasum(tensors[i], tensors[half + i]),)
        return combined


class PairOfRows(nn.Cell):
    """Adasum of the rows of (2, n), in which tensors of these sizes lie one after the other. Outputs: a row (n,)."""

    def __init__(self, sizes: Sequence[int]) -> None:
        super().__init__(auto_prefix=False)
        self.sizes = tuple(sizes)
        self.ours = chosen().library is not None
        if self.ours:
            self.of_each = Tensor(self.sizes, ms.int32)
            self.combine = operator("adasum_rows", lambda rows, sizes: rows[1:], lambda rows, sizes: rows)

    def construct(self, rows: Tensor) -> Tensor:
        if self.ours:
            return self.combine(rows, self.of_each)
        first, second = parted(rows[0], self.sizes), parted(rows[1], self.sizes)
        combined: Tensors = ()
        for i in range(len(self.sizes)):
            combined = combined + (_adasum(first[i], second[i]),)
        return ops.concat(combined)


def _adasum(a: Tensor, b: Tensor) -> Tensor:
    a, b = a.astype(ms.float64), b.astype(ms.float64)
    dot, a_square, b_square = (a * b).sum(), (a * a).sum(), (b * b).sum()
    return (_keep(dot, a_square) * a + _keep(dot, b_square) * b).astype(ms.float32)


def _keep(dot: Tensor, square: Tensor) -> Tensor:
    """1 − dot / 2·square, and 1 for a zero vector, whose dot product is zero too."""
    return 1 - dot / (2 * ops.select(ops.equal(square, 0), ops.ones_like(square), square))


class TakeBack(nn.Cell):
    """The weights go back to their bases. Inputs: what must be there before. Outputs: bases − weights as they were."""

    def __init__(self, weights: ParameterTuple, bases: ParameterTuple) -> None:
        super().__init__(auto_prefix=False)
        self.weights, self.bases = weights, bases
        self.ours = chosen().library is not None
        if self.ours:
            self.take_back = operator("take_back", _half, _half)

    def construct(self, before: Tensor) -> Tensors:
        differences: Tensors = ()
        if self.ours:
            return self.take_back(*ops.depend(self.bases, before), *ops.depend(self.weights, before))
        for i in range(len(self.weights)):
            differences = differences + (self.bases[i] - ops.depend(self.weights[i], before),)
        for i in range(len(self.weights)):
            ops.assign(self.weights[i], self.bases[i])
        return differences


class Move(Graph):
    """w ← base − difference, the next base too. Inputs: the differences. Outputs: a number, when it is done."""

    def __init__(self, weights: ParameterTuple, bases: ParameterTuple) -> None:
        super().__init__()
        self.weights, self.bases = weights, bases
        self.ours = chosen().library is not None
        if self.ours:
            self.move = operator("move", lambda *tensors: ONE, lambda *tensors: ms.float32)

    def construct(self, *differences: Tensor) -> Tensor:
        if self.ours:
            return self.move(*differences, *self.weights, *self.bases)
        for i in range(len(differences)):
            moved = self.bases[i] - differences[i]
            ops.assign(self.weights[i], moved)
            ops.assign(self.bases[i], moved)
        return Tensor(1.0, ms.float32)
