"""The native operators (`native/`) as custom operators of MindSpore."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from mindspore import ops
from mindspore.ops import signature

from msaccel.kernels.backend import current_backend

Shape = tuple[int, ...]
ONE = (1,)  # shape of a scalar output: MindSpore takes an empty shape for no output


class _Custom(ops.Custom):
    """One that may be copied with its cell: nothing of it changes once it is made."""

    def __deepcopy__(self, memo: dict[int, Any]) -> _Custom:
        return self


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
        written: for each input, whether the operator writes it in place. Such an input must be a parameter, and
            MindSpore keeps the order of its reads and writes. Empty: none is written.

    In PyNative mode, and in graphs with casts, MindSpore keeps the outputs' shapes by the operator's name and
    attributes, and would take those of another convolution. So all that decides about them is an attribute.
    """
    made = _Custom(f"{current_backend().library}:msaccel_{name}", out_shape=shape, out_dtype=kind, func_type="aot")
    made.add_prim_attr("settings", f"{shape.__qualname__} {settings}")
    if any(written):
        made.add_prim_attr("side_effect_mem", True)
        write, read = signature.sig_rw.RW_WRITE, signature.sig_rw.RW_READ
        roles = [signature.make_sig(f"input{i}", write if change else read) for i, change in enumerate(written)]
        made.set_signatures(tuple(roles))
    return made
