"""What less batch normalisation changes in a residual network."""

from __future__ import annotations

import mindspore as ms
from mindspore import Parameter, Tensor, nn, ops

from msaccel.models.resnet50.network import Basic, Bottleneck

EPSILON = 1e-4  # the smallest sum of squares, MindSpore's for `ops.L2Normalize`


def remove_inner_norms(network: nn.Cell) -> None:
    """Leaves each block the norm of its last convolution alone; a norm with a ReLU becomes that ReLU."""
    for _, block in network.cells_and_names():
        if not isinstance(block, (Basic, Bottleneck)):
            continue
        block.norm1 = Relu()
        if isinstance(block, Bottleneck):
            block.norm2 = Relu()
        if isinstance(block.shortcut, nn.SequentialCell):
            block.shortcut[1] = nn.Identity()


class Relu(nn.Cell):
    """ReLU; of bfloat16 in float32, because MindSpore's has no kernel for bfloat16 on a CPU."""

    def construct(self, x: Tensor) -> Tensor:
        return ops.relu(x.astype(ms.float32) if x.dtype == ms.bfloat16 else x)


def normalise_last_layer(network: nn.Cell) -> None:
    """The layer of the classes, `network.head`, keeps its weights, loses its bias and is normalised."""
    network.head = CosineDense(network.head.weight)


class CosineDense(nn.Cell):
    """γ · cos(x, wᵢ): features x (N, C) to logits (N, classes); γ has no weight decay.

    Args:
        weight: (classes, C), the initial values.
    """

    def __init__(self, weight: Tensor) -> None:
        super().__init__()
        self.weight = Parameter(Tensor(weight.asnumpy()), name="weight")
        self.gamma = Parameter(Tensor([1.0], ms.float32), name="gamma")
        self.product = ops.MatMul(transpose_b=True)

    def construct(self, x: Tensor) -> Tensor:
        # In float32, whatever x is: a sum of squares may be above float16's largest number.
        logits = self.gamma.astype(ms.float32) * self.product(unit_rows(x), unit_rows(self.weight))
        return logits.astype(x.dtype)


def unit_rows(matrix: Tensor) -> Tensor:
    """The rows of a matrix in float32, divided by their norms."""
    wide = matrix.astype(ms.float32)
    return wide * ops.rsqrt(ops.maximum((wide * wide).sum(1, keepdims=True), EPSILON))
