"""`import msaccel.kernels.auto` is all that a program needs: networks and optimizers get native operators at first use.

Experimental. A network is used when it is called from Python, or when `set_train` is called on it, which all training
loops do; then `accelerate` is called on it. One that is only ever called within a compiled function, and never by
`set_train`, is not seen: call `accelerate` on it. What was replaced is logged by the logger `msaccel.kernels`, at the
level INFO.

Raises:
    UnavailableError: the native operators cannot be built or do not work here.
"""

from __future__ import annotations

import functools
import logging
import sys
from collections.abc import Callable
from typing import Any

import mindspore as ms
from mindspore import nn

from msaccel.kernels import build
from msaccel.kernels.acceleration import accelerate, restore
from msaccel.kernels.swapped import Swapped

_SEEN = "_seen_by_msaccel"
_log = logging.getLogger("msaccel.kernels")
_call, _set_train = nn.Cell.__call__, nn.Cell.set_train
_MIXES: dict[str, Callable[..., Any]] = {
    name: getattr(ms.amp, name) for name in ("auto_mixed_precision", "custom_mixed_precision")
}


def _see(network: nn.Cell) -> None:
    """Accelerates a network, once. Cells within it that are called alone later have been seen with it."""
    if _SEEN in vars(network) or isinstance(network, Swapped):
        return
    for _, cell in network.cells_and_names():
        vars(cell)[_SEEN] = True
    if (device := ms.get_context("device_target")) != "CPU":
        _log.warning("msaccel.kernels.auto is for the CPU, and the device is %s: nothing is replaced.", device)
        return
    report = accelerate(network)
    if report.replaced:
        _log.info("%s: %s", type(network).__name__, report)


def _restoring(mix: Callable[..., Any]) -> Callable[..., Any]:
    """MindSpore rewrites a network from the source of its layers, so it is given them as they were."""

    @functools.wraps(mix)
    def mixed(network: Any, *args: Any, **kwargs: Any) -> Any:
        if isinstance(network, nn.Cell):
            restore(network)
            for _, cell in network.cells_and_names():
                vars(cell).pop(_SEEN, None)
        return mix(network, *args, **kwargs)

    return mixed


def _seen_call(self: nn.Cell, *args: Any, **kwargs: Any) -> Any:
    _see(self)
    return _call(self, *args, **kwargs)


def _seen_set_train(self: nn.Cell, mode: bool = True) -> nn.Cell:
    _see(self)
    return _set_train(self, mode)


build.library()
nn.Cell.__call__ = _seen_call
nn.Cell.set_train = _seen_set_train
for _module in [module for name, module in sys.modules.items() if name.startswith("mindspore")]:
    for _name, _mix in _MIXES.items():
        if vars(_module).get(_name) is _mix:
            vars(_module)[_name] = _restoring(_mix)
