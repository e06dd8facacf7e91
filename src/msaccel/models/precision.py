"""Networks that compute in lower precision; parameters stay float32 and are the master weights."""

from __future__ import annotations

import mindspore as ms
from mindspore import nn

DTYPES = {"fp32": ms.float32, "fp16": ms.float16, "bf16": ms.bfloat16}
NORMS = (nn.BatchNorm2d, nn.GroupNorm)


def compute_in(network: nn.Cell, precision: str) -> nn.Cell:
    """Lets the cells of a network cast their inputs and parameters to `fp16` or `bf16`; `fp32` changes nothing.

    Norms compute in float32: the sums of their squares and the running statistics need it. Cells with a `bprop` of
    their own are left out: the cast around them would not be differentiated. They get inputs of one type from the
    cell that holds their parameters.
    """
    if precision != "fp32":
        network.to_float(DTYPES[precision])
        for _, cell in network.cells_and_names():
            if isinstance(cell, NORMS):
                cell.to_float(ms.float32)
            elif hasattr(cell, "bprop"):
                cell.add_flags(fp16=False, fp32=False, bf16=False)
    return network
