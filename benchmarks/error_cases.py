"""The kind of case by which an operator's rounding errors are measured, of msaccel, MindSpore and PyTorch."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from mindspore import nn


@dataclass
class Case:
    """One operator of some shape.

    Attributes:
        inputs: float32: x, then the parameters in the order of both cells.
        own: msaccel's cell of x.
        native: MindSpore's cell of x.
        torch: the same as a function of all inputs.
        gradients: whether it has some, which are compared, too.
    """

    inputs: list[np.ndarray]
    own: nn.Cell
    native: nn.Cell
    torch: Callable[..., torch.Tensor]
    gradients: bool = True


Draw = np.random.Generator


def normal(draw: Draw, *shape: int) -> np.ndarray:
    return draw.standard_normal(shape).astype(np.float32)
