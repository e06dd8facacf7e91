"""The operators in `native/` as MindSpore's."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from mindspore import ops

from msaccel.kernels.backend import chosen

Shape = tuple[int, ...]
ONE = (1,)  # an empty shape MindSpore would take for no output at all


def operator(name: str, shape: Callable[..., Any], kind: Callable[..., Any]) -> ops.Custom:
    """`msaccel_<name>` of the library that the job chose.

    Args:
        shape: the outputs' shapes as a function of the inputs'.
        kind: the outputs' types as a function of the inputs'.
    """
    return ops.Custom(f"{chosen().library}:msaccel_{name}", out_shape=shape, out_dtype=kind, func_type="aot")
