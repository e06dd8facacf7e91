"""Adasum in the graph: one pair at a time, and the step of a part in delta mode."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import mindspore as ms
from mindspore import Parameter, ParameterTuple, Tensor, nn, ops

Tensors = tuple[Tensor, ...]


class Pair(nn.Cell):
    """Adasum of two sets of tensors. Inputs: those of a, then those of b, float32. Outputs: the combined ones."""

    def construct(self, *tensors: Tensor) -> Tensors:
        half = len(tensors) // 2
        combined: Tensors = ()
        for i in range(half):
            a, b = tensors[i].astype(ms.float64), tensors[half + i].astype(ms.float64)
            dot, a_square, b_square = (a * b).sum(), (a * a).sum(), (b * b).sum()
            combined = combined + ((_keep(dot, a_square) * a + _keep(dot, b_square) * b).astype(ms.float32),)
        return combined


def _keep(dot: Tensor, square: Tensor) -> Tensor:
    """1 − dot / 2·square, and 1 for a zero vector, whose dot product is zero too."""
    return 1 - dot / (2 * ops.select(ops.equal(square, 0), ops.ones_like(square), square))


def combine(parts: Sequence[Tensors], pair: Callable[..., Tensors]) -> Tensors:
    """Adasum over a power of two of parts, by contiguous halves in their order."""
    if len(parts) == 1:
        return parts[0]
    half = len(parts) // 2
    return pair(*combine(parts[:half], pair), *combine(parts[half:], pair))


class PartStep(nn.Cell):
    """The step of one part's own optimizer from the common weights, taken back and returned as a difference.

    Inputs: good, a boolean scalar all parts have agreed on; norm and rate, float32 scalars; the part's gradients.
    Outputs: w_old − w_new for every parameter, and 1.0 if the gradients were clipped.
    """

    def __init__(self, optimizer: nn.Optimizer, base: ParameterTuple, clip: nn.Cell | None) -> None:
        super().__init__(auto_prefix=False)
        self.optimizer, self.base, self.clip = optimizer, base, clip
        self.weights = optimizer.parameters

    def construct(self, good: Tensor, norm: Tensor, rate: Tensor, *gradients: Tensor) -> tuple[Tensors, Tensor]:
        ops.assign(self.optimizer.learning_rate, rate)
        clipped = Tensor(0.0, ms.float32)
        if good:
            if self.clip is not None:
                gradients, clipped = self.clip(gradients, norm)
            clipped = ops.depend(clipped, self.optimizer(gradients))
        deltas: Tensors = ()
        for weight, base in zip(self.weights, self.base):  # noqa: B905 - the graph compiler knows no strict
            deltas = deltas + (base - ops.depend(weight, clipped),)
        for weight, base in zip(self.weights, self.base):  # noqa: B905
            ops.assign(weight, base)
        return deltas, clipped


class Move(nn.Cell):
    """w ← w − Adasum of the parts' differences; the new weights are the next update's base."""

    def __init__(self, weights: Sequence[Parameter], base: ParameterTuple) -> None:
        super().__init__(auto_prefix=False)
        self.weights, self.base = ParameterTuple(weights), base

    def construct(self, *combined: Tensor) -> Tensor:
        for i in range(len(combined)):
            moved = self.base[i] - combined[i]
            ops.assign(self.weights[i], moved)
            ops.assign(self.base[i], moved)
        return combined[0]
