"""The trust ratio of a layer, by which LARS and LAMB adapt its rate; for graphs."""

from __future__ import annotations

import mindspore as ms
from mindspore import Tensor, ops


def norm(tensor: Tensor) -> Tensor:
    """The Euclidean norm of all elements."""
    return ops.sqrt((tensor * tensor).sum())


def trust_ratio(of_weight: Tensor, of_step: Tensor, denominator: Tensor) -> Tensor:
    """The weight's norm divided by the denominator, or 1 where the weight or its step is all zero."""
    both = ops.greater(ops.minimum(of_weight, of_step), 0)
    return ops.select(both, of_weight / denominator, Tensor(1.0, ms.float32))
