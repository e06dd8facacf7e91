"""Causal self-attention as one operator forward and one backward."""

from __future__ import annotations

import mindspore as ms
from mindspore import Tensor, nn

from msaccel.kernels.backend import Products, current_backend
from msaccel.kernels.custom_op import Shape, operator


class _Attention(nn.Cell):
    """The operators: qkv to y, and the logarithms of the normalisers (N · T, H) for the gradient."""

    def __init__(self, heads: int, block: int, products: Products) -> None:
        super().__init__()
        self.numbers = Tensor([heads, block, products], ms.int32)

        def shapes(qkv: Shape, numbers: Shape) -> tuple[Shape, Shape]:
            return (qkv[0], qkv[1] // 3), (qkv[0], heads)

        self.forward = operator("attention", shapes, lambda qkv, numbers: (qkv, qkv), heads)
        self.gradient = operator("attention_gradient", lambda dy, y, qkv, *others: qkv, lambda dy, *others: dy)

    def construct(self, qkv: Tensor) -> tuple[Tensor, Tensor]:
        return self.forward(qkv, self.numbers)

    def bprop(self, qkv: Tensor, out: tuple[Tensor, Tensor], dout: tuple[Tensor, Tensor]) -> tuple[Tensor]:
        return (self.gradient(dout[0], out[0], qkv, out[1], self.numbers),)


class CausalAttention(nn.Cell):
    """Attention of each position to itself and to those before it in its block. Needs the native operators.

    No matrix of T × T is kept: the gradient computes the weights again. If the backend multiplies in bfloat16, factors
    are rounded to it.

    Args:
        heads: H.
        block: T.

    Inputs: qkv (N · T, 3 C) in float32: queries, keys and values side by side, each of H parts of C / H.
    Output: (N · T, C).
    """

    def __init__(self, heads: int, block: int) -> None:
        super().__init__()
        self.attend = _Attention(heads, block, current_backend().products)

    def construct(self, qkv: Tensor) -> Tensor:
        return self.attend(qkv)[0]
