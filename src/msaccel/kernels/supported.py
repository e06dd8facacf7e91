"""Which operators `accelerate` replaces, which operators and layers it leaves, and why."""

from __future__ import annotations

import sys

import mindspore as ms
from mindspore import nn, ops

from msaccel.kernels.swapped import (
    Swapped,
    SwappedBatchNorm,
    SwappedConvolution,
    SwappedLayerNorm,
    SwappedTransposedConvolution,
)
from msaccel.kernels.swapped_activations import ACTIVATIONS
from msaccel.kernels.swapped_optimizers import OPTIMIZERS, why_optimizer_stays
from msaccel.kernels.swapped_pool import SwappedMaxPool, SwappedPaddedMaxPool

OPERATORS: dict[str, type[Swapped]] = {
    "BatchNorm": SwappedBatchNorm,
    "Conv2D": SwappedConvolution,
    "Conv2DBackpropInput": SwappedTransposedConvolution,
    "Conv2DTranspose": SwappedTransposedConvolution,
    "LayerNorm": SwappedLayerNorm,
    "MaxPool": SwappedMaxPool,
    "MaxPool3DWithArgmax": SwappedPaddedMaxPool,
}

# Operators that time is spent in and that stay, and why.
LEFT_OPERATORS = {
    "AvgPool": "no operator here",
    "AvgPool3D": "no operator here",
    "BatchMatMul": "MindSpore's matrix product stays",
}


def layers() -> dict[type[nn.Cell], type[nn.Cell]]:
    """Layers that get another class: `classes` without the optimizers."""
    if "mindcv" not in sys.modules:
        return ACTIVATIONS
    try:
        from msaccel.kernels.swapped_mindcv import LAYERS
    except ImportError:  # a version of MindCV that has them elsewhere
        return ACTIVATIONS
    return {**ACTIVATIONS, **LAYERS}


def classes() -> dict[type[nn.Cell], type[nn.Cell]]:
    """Layers and optimizers that get another class, whose method `make_fast` makes the cell that computes."""
    return {**layers(), **OPTIMIZERS}


def why_operator_stays(native: ops.Primitive, cell: nn.Cell) -> str:
    """Why an operator of a layer stays, though there is one for it; empty if it need not."""
    if (kind := _lower_precision(cell)) and getattr(ms, kind) not in OPERATORS[native.name].types:
        return f"in {kind}, by to_float"
    if cell.get_flags().get("fp32") and ms.float16 in OPERATORS[native.name].types:
        return "in float32, by to_float"  # in PyNative mode it may be given float16, and must not round its weight
    if native.name == "MaxPool3DWithArgmax" and (type(cell) is not nn.MaxPool2d or cell.return_indices):
        return "not in an nn.MaxPool2d, or with indices"
    return ""


def _lower_precision(cell: nn.Cell) -> str:
    """The type to which a layer casts what its operators are given, in PyNative mode only when they are called."""
    flags = cell.get_flags()
    return "float16" if flags.get("fp16") else "bfloat16" if flags.get("bf16") else ""


def why_layer_stays(cell: nn.Cell) -> str:
    """Why a layer stays, if it is of a kind that there are operators for; empty for all others."""
    if isinstance(cell, nn.Dense):
        return "MindSpore's matrix product stays"
    if isinstance(cell, nn.Embedding):
        return "the operator here adds positions"
    if isinstance(cell, nn.CrossEntropyLoss):
        return "the operator here has no weights of classes"
    if type(cell) is nn.Adam:
        return "its gradients may be sparse"
    if type(cell) in OPTIMIZERS:
        return why_optimizer_stays(cell)
    for native, swapped in layers().items():
        if isinstance(cell, native) and type(cell) not in (native, swapped):
            return f"a class derived from {native.__name__}"
        if isinstance(cell, native) and (kind := _lower_precision(cell)):
            return f"in {kind}, by to_float"
    return ""
