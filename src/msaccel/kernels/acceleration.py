"""Replaces the operators of any MindSpore network or optimizer that are slow on a CPU, in place.

A layer such as `nn.Conv2d` keeps its operator in an attribute. The attribute is replaced by a cell that is called in
the same way (`swapped.py`, `swapped_pool.py`), so layers, parameters and their names stay, and checkpoints load both
ways. Cells without such an attribute are given another class: activations (`swapped_activations.py`), layers of MindCV
(`swapped_mindcv.py`) and optimizers (`swapped_optimizers.py`).
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

import mindspore as ms
from mindspore import nn

from msaccel.kernels import build
from msaccel.kernels.backend import native_operators
from msaccel.kernels.cores import cores
from msaccel.kernels.supported import LEFT_OPERATORS, OPERATORS, classes, why_layer_stays, why_operator_stays
from msaccel.kernels.swapped import NotSupportedError, Swapped

_AUTOMATIC = 'network: auto_mixed_precision at "auto" casts what MindSpore\'s own operators are given'


@dataclass(frozen=True)
class Replacements:
    """What `accelerate` did, by the path of each operator in the network, such as `layer1.0.conv1.conv2d`.

    Attributes:
        replaced: kinds of the operators that were replaced; a batch norm has one for training and one for evaluation.
        left: kinds of those that were not, and of layers of a kind that there are operators for, each with the reason.
    """

    replaced: dict[str, str] = field(default_factory=dict)
    left: dict[str, str] = field(default_factory=dict)

    def __str__(self) -> str:
        done = ", ".join(f"{count} {kind}" for kind, count in sorted(Counter(self.replaced.values()).items()))
        lines = [f"Replaced: {done or 'nothing'}."]
        for reason, count in sorted(Counter(self.left.values()).items()):
            lines.append(f"Left: {count} {reason}.")
        return "\n".join(lines)


def accelerate(network: nn.Cell) -> Replacements:
    """Replaces operators of a network by native ones, for training and evaluation, in graph and PyNative mode.

    An optimizer, or a training step that holds network and optimizer, can be given instead. Call it after
    `auto_mixed_precision` or `to_float`, and before the network runs: a training step that is already compiled, or a
    `construct` decorated with `ms.jit`, goes on with the old operators. First derivatives only. The operators use
    `OMP_NUM_THREADS` threads, read when the first of them runs; if it is not set, or empty, it becomes the number of
    processors that this process may use, by its affinity and by the quota of its container.

    Raises:
        TypeError: it is no network.
        UnavailableError: the native operators cannot be built or do not work here, or the device is not a CPU.
    """
    if (device := ms.get_context("device_target")) != "CPU":
        raise build.UnavailableError(f"accelerate is for the CPU, and the device is {device}; leave it out.")
    report = Replacements()
    with native_operators():
        _check(network, "accelerate")
        if not os.environ.get("OMP_NUM_THREADS", "").strip():
            os.environ["OMP_NUM_THREADS"] = str(max(1, int(cores())))
        cells = list(_cells("", network, set()))
        automatic = [path for path, cell in cells if hasattr(cell, "amp_strategy")]
        report.left.update({path.rstrip("."): _AUTOMATIC for path in automatic})
        for path, cell in cells:
            if not path.startswith(tuple(automatic)):
                _accelerate_cell(path, cell, report)
                cell.compile_cache.clear()
    return report


def restore(network: nn.Cell) -> None:
    """Puts MindSpore's operators back, as `ms.export` needs: a MINDIR holds the path of the operators' library."""
    _check(network, "restore")
    natives = {swapped: native for native, swapped in classes().items()}
    for _, cell in _cells("", network, set()):
        for name, value in list(vars(cell).items()):
            if isinstance(value, Swapped):
                setattr(cell, name, value.native)
        if (native := natives.get(type(cell))) is not None:
            cell.__class__ = native
            cell.__dict__.pop("fast")
        cell.compile_cache.clear()


def _check(network: object, function: str) -> None:
    if not isinstance(network, nn.Cell):
        raise TypeError(
            f"{function} takes a network (nn.Cell), and was given a value of type {type(network).__name__}; pass one."
        )


def _cells(path: str, cell: nn.Cell, seen: set[int]) -> Iterator[tuple[str, nn.Cell]]:
    """The cells that run, each once, with their paths, such as `layer1.0.`.

    Those of a `SequentialCell` are in its list: there `auto_mixed_precision` may put others than it has as children.
    """
    if id(cell) in seen:
        return
    seen.add(id(cell))
    yield path, cell
    children = cell.name_cells()
    if isinstance(cell, nn.SequentialCell) and len(children) == len(cell.cell_list):
        children = dict(zip(children, cell.cell_list, strict=True))
    for name, child in children.items():
        yield from _cells(f"{path}{name}.", child, seen)


def _accelerate_cell(path: str, cell: nn.Cell, report: Replacements) -> None:
    for name, native in list(cell._primitives.items()):
        if native is None or vars(cell).get(name) is not native:  # MindSpore keeps one whose place another has taken
            continue
        if native.name in LEFT_OPERATORS:
            report.left[path + name] = f"{native.name}: {LEFT_OPERATORS[native.name]}"
        if (operator := OPERATORS.get(native.name)) is None:
            continue
        if why := why_operator_stays(native, cell):
            report.left[path + name] = f"{native.name}: {why}"
            continue
        try:
            swapped = operator(native)
        except NotSupportedError as reason:
            report.left[path + name] = f"{native.name}: {reason}"
            continue
        del cell._primitives[name]
        # Not among the cells of the network: its precision and mode are those of the cell that calls it.
        object.__setattr__(cell, name, swapped)
        report.replaced[path + name] = native.name
    if why := why_layer_stays(cell):
        report.left[path.rstrip(".")] = f"{type(cell).__name__}: {why}"
    elif (swapped_class := classes().get(type(cell))) is not None:
        try:
            fast = swapped_class.make_fast(cell)  # first: if this fails, the cell is as it was
        except NotSupportedError as reason:
            report.left[path.rstrip(".")] = f"{type(cell).__name__}: {reason}"
            return
        report.replaced[path.rstrip(".")] = type(cell).__name__
        cell.__class__ = swapped_class
        object.__setattr__(cell, "fast", fast)
