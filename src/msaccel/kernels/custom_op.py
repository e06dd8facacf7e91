"""The native operators (`native/`) as custom operators of MindSpore."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from mindspore import ops

from msaccel.kernels.backend import current_backend

Shape = tuple[int, ...]
ONE = (1,)  # shape of a scalar output: MindSpore takes an empty shape for no output


def operator(name: str, shape: Callable[..., Any], kind: Callable[..., Any]) -> ops.Custom:
    """`msaccel_<name>` of the selected backend's library.

    Args:
        shape: the outputs' shapes as a function of the inputs'.
        kind: the outputs' types as a function of the inputs'.
    """
    return ops.Custom(f"{current_backend().library}:msaccel_{name}", out_shape=shape, out_dtype=kind, func_type="aot")
