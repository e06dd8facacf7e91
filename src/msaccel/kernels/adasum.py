"""Adasum of many sets of tensors (arXiv 2006.02924), and the weight updates before and after it, one operator each."""

from __future__ import annotations

from collections.abc import Sequence

import mindspore as ms
from mindspore import ParameterTuple, Tensor, nn, ops

from msaccel.kernels.backend import current_backend
from msaccel.kernels.custom_op import ONE, operator
from msaccel.kernels.flat import Split, Tensors


def _half(*inputs: object) -> tuple[object, ...]:
    return inputs[: len(inputs) // 2]


class Adasum(nn.Cell):
    """Adasum over a power of two of parts of so many tensors each, by contiguous halves in their order.

    Inputs: the float32 tensors of the first part, then those of the next. Outputs: the combined ones.
    """

    def __init__(self, parts: int, tensors: int) -> None:
        super().__init__(auto_prefix=False)
        self.levels, self.tensors = parts.bit_length() - 1, tensors
        self.fused = current_backend().library is not None
        if self.fused:
            self.number = Tensor([parts], ms.int32)

            def of_one(number: object, *inputs: object) -> tuple[object, ...]:
                return inputs[:tensors]

            self.combine = operator("adasum", of_one, of_one, settings=tensors)

    def construct(self, *tensors: Tensor) -> Tensors:
        if self.fused:
            return self.combine(self.number, *tensors)
        for _ in range(self.levels):
            tensors = self.level(tensors)
        return tensors

    def level(self, tensors: Tensors) -> Tensors:
        """Combines neighbouring parts: half as many parts."""
        combined: Tensors = ()
        for part in range(0, len(tensors), 2 * self.tensors):
            for i in range(part, part + self.tensors):
                combined = combined + (_adasum(tensors[i], tensors[i + self.tensors]),)
        return combined


class AdasumRows(nn.Cell):
    """Adasum of the two rows of (2, n), each a concatenation of tensors of these sizes. Output: one row (n,)."""

    def __init__(self, sizes: Sequence[int]) -> None:
        super().__init__(auto_prefix=False)
        self.sizes, self.split = tuple(sizes), Split([(size,) for size in sizes])
        self.fused = current_backend().library is not None
        if self.fused:
            self.lengths = Tensor(self.sizes, ms.int32)
            self.combine = operator("adasum_rows", lambda rows, sizes: rows[1:], lambda rows, sizes: rows)

    def construct(self, rows: Tensor) -> Tensor:
        if self.fused:
            return self.combine(rows, self.lengths)
        first, second = self.split(rows[0]), self.split(rows[1])
        combined: Tensors = ()
        for i in range(len(self.sizes)):
            combined = combined + (_adasum(first[i], second[i]),)
        return ops.concat(combined)


def _adasum(a: Tensor, b: Tensor) -> Tensor:
    a, b = a.astype(ms.float64), b.astype(ms.float64)
    dot, a_square, b_square = (a * b).sum(), (a * a).sum(), (b * b).sum()
    return (_weight(dot, a_square) * a + _weight(dot, b_square) * b).astype(ms.float32)


def _weight(dot: Tensor, square: Tensor) -> Tensor:
    """Weight of a vector in the sum: 1 − dot / (2·square), and 1 for a zero vector, whose dot product is zero too."""
    return 1 - dot / (2 * ops.select(ops.equal(square, 0), ops.ones_like(square), square))


class RevertToBase(nn.Cell):
    """Sets the weights back to their bases: w ← base.

    Input: a tensor that must be computed before. Outputs: bases − weights, with the weights as they were.
    """

    def __init__(self, weights: ParameterTuple, bases: ParameterTuple) -> None:
        super().__init__(auto_prefix=False)
        self.weights, self.bases = weights, bases
        self.fused = current_backend().library is not None
        if self.fused:
            written = (False,) * len(bases) + (True,) * len(weights)
            self.revert = operator("revert_to_base", _half, _half, written=written)

    def construct(self, before: Tensor) -> Tensors:
        differences: Tensors = ()
        if self.fused:
            return self.revert(*ops.depend(self.bases, before), *self.weights)
        for i in range(len(self.weights)):
            differences = differences + (self.bases[i] - ops.depend(self.weights[i], before),)
        for i in range(len(self.weights)):
            ops.assign(self.weights[i], self.bases[i])
        return differences


class Subtract(nn.Cell):
    """w ← w − difference. Inputs: the differences. Output: 1."""

    def __init__(self, weights: ParameterTuple) -> None:
        super().__init__(auto_prefix=False)
        self.weights = weights
        self.fused = current_backend().library is not None
        if self.fused:
            written = (False,) * len(weights) + (True,) * len(weights)
            self.subtract = operator("subtract", lambda *tensors: ONE, lambda *tensors: ms.float32, written=written)

    def construct(self, differences: Tensors) -> Tensor:
        if self.fused:
            return self.subtract(*differences, *self.weights)
        for i in range(len(differences)):
            ops.assign_sub(self.weights[i], differences[i])
        return Tensor(1.0, ms.float32)
