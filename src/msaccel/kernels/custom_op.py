"""The native operators (`native/`) as custom operators of MindSpore."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from mindspore import ops

from msaccel.kernels.backend import current_backend

Shape = tuple[int, ...]
ONE = (1,)  # shape of a scalar output: MindSpore takes an empty shape for no output


def operator(name: str, shape: Callable[..., Any], kind: Callable[..., Any], settings: Any = None) -> ops.Custom:
    """`msaccel_<name>` of the selected backend's library.

    Args:
        shape: the outputs' shapes as a function of the inputs'.
        kind: the outputs' types as a function of the inputs'.
        settings: whatever else the outputs' shapes depend on: in PyNative mode MindSpore keeps shapes by the operator's
            name, attributes and inputs, and would take those of another convolution of the same input.
    """
    made = ops.Custom(f"{current_backend().library}:msaccel_{name}", out_shape=shape, out_dtype=kind, func_type="aot")
    if settings is not None:
        made.add_prim_attr("settings", str(settings))
    return made
