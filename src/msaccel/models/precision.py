"""Mixed precision: a network computes in float16 or bfloat16, and its parameters stay in float32."""

from __future__ import annotations

import mindspore as ms
from mindspore import nn

from msaccel.kernels import LayerNorm

DTYPES = {"fp32": ms.float32, "fp16": ms.float16, "bf16": ms.bfloat16}
NORMS = (nn.BatchNorm2d, nn.GroupNorm, LayerNorm)


def compute_in(network: nn.Cell, precision: str) -> nn.Cell:
    """Makes a network cast inputs and parameters to `fp16` or `bf16` in every cell; `fp32` changes nothing.

    Normalisation layers compute in float32, because their sums of squares and running statistics need it. Cells that
    define `bprop` do not cast, because MindSpore would not differentiate the cast; the cell that holds their parameters
    casts for them.

    Returns:
        The same network.
    """
    if precision != "fp32":
        network.to_float(DTYPES[precision])
        for _, cell in network.cells_and_names():
            if isinstance(cell, NORMS):
                cell.to_float(ms.float32)
            elif hasattr(cell, "bprop"):
                cell.add_flags(fp16=False, fp32=False, bf16=False)
    return network
