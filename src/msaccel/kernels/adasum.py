"""Adasum of two sets of tensors (arXiv 2006.02924), and the weight updates before and after it, one operator each.

`RevertToBase` and `StepFromBase` write weights in place, which MindSpore's graph does not know: whatever reads the
weights in the same graph must be ordered by `ops.depend`.
"""

from __future__ import annotations

from collections.abc import Sequence

import mindspore as ms
from mindspore import ParameterTuple, Tensor, nn, ops

from msaccel.kernels.backend import current_backend
from msaccel.kernels.custom_op import ONE, operator
from msaccel.kernels.flat import Tensors, parted
from msaccel.kernels.graph import Graph


def _half(*inputs: object) -> tuple[object, ...]:
    return inputs[: len(inputs) // 2]


class Adasum(Graph):
    """Adasum of two sets of float32 tensors. Inputs: the tensors of a, then those of b. Outputs: the combined ones."""

    def __init__(self) -> None:
        super().__init__()
        self.fused = current_backend().library is not None
        if self.fused:
            self.combine = operator("adasum", _half, _half)

    def construct(self, *tensors: Tensor) -> Tensors:
        if self.fused:
            return self.combine(*tensors)
        half = len(tensors) // 2
        combined: Tensors = ()
        for i in range(half):
            combined = combined + (_adasum(tensors[i], tensors[half + i]),)
        return combined


class AdasumRows(nn.Cell):
    """Adasum of the two rows of (2, n), each a concatenation of tensors of these sizes. Output: one row (n,)."""

    def __init__(self, sizes: Sequence[int]) -> None:
        super().__init__(auto_prefix=False)
        self.sizes = tuple(sizes)
        self.fused = current_backend().library is not None
        if self.fused:
            self.lengths = Tensor(self.sizes, ms.int32)
            self.combine = operator("adasum_rows", lambda rows, sizes: rows[1:], lambda rows, sizes: rows)

    def construct(self, rows: Tensor) -> Tensor:
        if self.fused:
            return self.combine(rows, self.lengths)
        first, second = parted(rows[0], self.sizes), parted(rows[1], self.sizes)
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
            self.revert = operator("revert_to_base", _half, _half)

    def construct(self, before: Tensor) -> Tensors:
        differences: Tensors = ()
        if self.fused:
            return self.revert(*ops.depend(self.bases, before), *ops.depend(self.weights, before))
        for i in range(len(self.weights)):
            differences = differences + (self.bases[i] - ops.depend(self.weights[i], before),)
        for i in range(len(self.weights)):
            ops.assign(self.weights[i], self.bases[i])
        return differences


class StepFromBase(Graph):
    """w ← base − difference, then base ← w. Inputs: the differences. Output: a scalar to depend on."""

    def __init__(self, weights: ParameterTuple, bases: ParameterTuple) -> None:
        super().__init__()
        self.weights, self.bases = weights, bases
        self.fused = current_backend().library is not None
        if self.fused:
            self.step = operator("step_from_base", lambda *tensors: ONE, lambda *tensors: ms.float32)

    def construct(self, *differences: Tensor) -> Tensor:
        if self.fused:
            return self.step(*differences, *self.weights, *self.bases)
        for i in range(len(differences)):
            moved = self.bases[i] - differences[i]
            ops.assign(self.weights[i], moved)
            ops.assign(self.bases[i], moved)
        return Tensor(1.0, ms.float32)
