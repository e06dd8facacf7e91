"""Operators that MindSpore lacks, or has too slowly, on the device at hand.

`use(choose("auto", on_cpu=True))` before networks are built, then `Conv2d` in the place of `nn.Conv2d`. Importing this
package does not import MindSpore: the process that launches jobs asks it whether oneDNN's operators can be had.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from msaccel.kernels.backend import Choice, choose, chosen, refusals, use

if TYPE_CHECKING:
    from msaccel.kernels.adasum import Move, Pair, PairOfRows, TakeBack
    from msaccel.kernels.conv import Conv2d
    from msaccel.kernels.dense import Dense
    from msaccel.kernels.finite_check import FiniteCheck, Outcome, stack_outcome
    from msaccel.kernels.loss import CrossEntropy
    from msaccel.kernels.multi_tensor import Adam, AddUp, GlobalNorm, Momentum, Scale
    from msaccel.kernels.norm import BatchNorm2d
    from msaccel.kernels.pool import MaxPool2d

__all__ = [
    "Adam", "AddUp", "BatchNorm2d", "Choice", "Conv2d", "CrossEntropy", "Dense", "FiniteCheck", "GlobalNorm",
    "MaxPool2d", "Momentum", "Move", "Outcome", "Pair", "PairOfRows", "Scale", "TakeBack", "choose", "chosen",
    "refusals", "stack_outcome", "use",
]  # fmt: skip


_CELLS = {
    "Adam": "multi_tensor",
    "AddUp": "multi_tensor",
    "BatchNorm2d": "norm",
    "Conv2d": "conv",
    "CrossEntropy": "loss",
    "Dense": "dense",
    "FiniteCheck": "finite_check",
    "GlobalNorm": "multi_tensor",
    "MaxPool2d": "pool",
    "Momentum": "multi_tensor",
    "Move": "adasum",
    "Outcome": "finite_check",
    "Pair": "adasum",
    "PairOfRows": "adasum",
    "Scale": "multi_tensor",
    "TakeBack": "adasum",
    "stack_outcome": "finite_check",
}


def __getattr__(name: str) -> Any:
    if name in _CELLS:
        return getattr(importlib.import_module(f"msaccel.kernels.{_CELLS[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
