"""The native operators (`native/`) as custom operators of MindSpore."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from mindspore import ops
from mindspore.ops import signature

from msaccel.kernels.backend import current_backend

Shape = tuple[int, ...]
ONE = (1,)  # shape of a scalar output: MindSpore takes an empty shape for no output


def operator(
    name: str,
    shape: Callable[..., Any],
    kind: Callable[..., Any],
    settings: Any = None,
    written: Sequence[bool] = (),
) -> ops.Custom:
    """`msaccel_<name>` of the selected backend's library.

    Args:
        shape: the outputs' shapes as a function of the inputs'.
        kind: the outputs' types as a function of the inputs'.
        settings: whatever else the outputs' shapes depend on.
        written: for each input, whether the operator changes it, in place: then it is a parameter, and MindSpore keeps
            the order of what reads and writes it. Empty if none is.

    In PyNative mode, and in graphs with casts, MindSpore keeps the outputs' shapes by the operator's name and
    attributes, and would take those of another convolution. So all that decides about them is an attribute.
    """
    made = ops.Custom(f"{current_backend().library}:msaccel_{name}", out_shape=shape, out_dtype=kind, func_type="aot")
    made.add_prim_attr("settings", f"{shape.__qualname__} {settings}")
    if any(written):
        made.add_prim_attr("side_effect_mem", True)
        roles = (signature.sig_rw.RW_WRITE if change else signature.sig_rw.RW_READ for change in written)
        made.set_signatures(tuple(signature.make_sig(f"input{i}", role) for i, role in enumerate(roles)))
    return made
