"""Mixed precision: a network computes in float16 or bfloat16, and its parameters stay in float32."""

from __future__ import annotations

import mindspore as ms
from mindspore import nn

from msaccel.kernels import LayerNorm

NORMS = (nn.BatchNorm2d, nn.GroupNorm, LayerNorm)


def compute_in(network: nn.Cell, precision: str) -> nn.Cell:
    """Makes a network cast inputs and parameters to float16 in every cell, if `precision` is `fp16`.

    `bf16` changes nothing here: convolutions, dense layers and attention have it from the backend that they were built
    with (`kernels.Products`), and all else computes in float32.

    Normalisation layers compute in float32, because their sums of squares and running statistics need it. Cells that
    define `bprop` do not cast, because MindSpore would not differentiate the cast; the cell that holds their parameters
    casts for them.

    Returns:
        The same network.
    """
    if precision == "fp16":
        network.to_float(ms.float16)
        for _, cell in network.cells_and_names():
            if isinstance(cell, NORMS):
                cell.to_float(ms.float32)
            elif hasattr(cell, "bprop"):
                cell.add_flags(fp16=False, fp32=False, bf16=False)
    return network
