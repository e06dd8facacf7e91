"""Products of batches of matrices, as in attention."""

from __future__ import annotations

from typing import Any

import mindspore as ms
from mindspore import Tensor, nn, ops

from msaccel.kernels.backend import Products, current_backend
from msaccel.kernels.custom_op import Shape, operator


class _Product(nn.Cell):
    """The operator: a (N, m, k), or (N, k, m) transposed, and b (N, k, n), or (N, n, k), to (N, m, n)."""

    def __init__(self, transpose_a: bool, transpose_b: bool, products: Products) -> None:
        super().__init__()
        self.numbers = Tensor([int(transpose_a), int(transpose_b), products], ms.int32)

        def shape(a: Shape, b: Shape, numbers: Shape) -> Shape:
            return a[0], a[2 if transpose_a else 1], b[1 if transpose_b else 2]

        self.forward = operator("matrix_product", shape, lambda a, *others: a, (transpose_a, transpose_b))

    def construct(self, a: Tensor, b: Tensor) -> Tensor:
        return self.forward(a, b, self.numbers)


class _Products(nn.Cell):
    """a·b, or a·bᵀ, with its gradients: da = dc·bᵀ and db = aᵀ·dc, or da = dc·b and db = dcᵀ·a."""

    def __init__(self, transpose_b: bool, products: Products) -> None:
        super().__init__()
        self.transpose_b = transpose_b
        self.forward = _Product(False, transpose_b, products)
        self.gradient_of_a = _Product(False, not transpose_b, products)
        self.gradient_of_b = _Product(True, False, products)

    def construct(self, a: Tensor, b: Tensor) -> Tensor:
        return self.forward(a, b)

    def bprop(self, a: Tensor, b: Tensor, c: Tensor, dc: Tensor) -> tuple[Tensor, Tensor]:
        left, right = (dc, a) if self.transpose_b else (a, dc)
        return self.gradient_of_a(dc, b), self.gradient_of_b(left, right)


class BatchProduct(nn.Cell):
    """`ops.BatchMatMul` of four-dimensional tensors, in bfloat16 if the backend multiplies so.

    Args:
        transpose_b: whether the last two dimensions of b are exchanged.

    Inputs: a (N, H, m, k) and b (N, H, k, n), or (N, H, n, k). Output: (N, H, m, n).
    """

    def __init__(self, transpose_b: bool = False) -> None:
        super().__init__()
        products = current_backend().products
        self.narrow = products != Products.FLOAT32
        self.product: Any = _Products(transpose_b, products) if self.narrow else ops.BatchMatMul(False, transpose_b)

    def construct(self, a: Tensor, b: Tensor) -> Tensor:
        if not self.narrow:
            return self.product(a, b)
        c = self.product(a.reshape(-1, *a.shape[2:]), b.reshape(-1, *b.shape[2:]))
        return c.reshape(*a.shape[:2], *c.shape[1:])
