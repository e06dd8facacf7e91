"""Embeddings of characters and of their positions."""

from __future__ import annotations

from typing import Any

import mindspore as ms
from mindspore import Tensor, nn, ops

from msaccel.kernels.backend import current_backend
from msaccel.kernels.custom_op import Shape, operator


class _FusedEmbedding(nn.Cell):
    """The operators, for characters (N · T,)."""

    def __init__(self) -> None:
        super().__init__()

        def shape(x: Shape, table: Shape, positions: Shape) -> Shape:
            return x[0], table[1]

        def first_of_weights(x: Any, table: Any, *others: Any) -> Any:
            return table

        self.forward = operator("embedding", shape, first_of_weights)
        self.gradient = operator(
            "embedding_gradient", lambda x, dy, table, positions: (table, positions), lambda x, dy, *others: (dy, dy)
        )

    def construct(self, x: Tensor, table: Tensor, positions: Tensor) -> Tensor:
        return self.forward(x, table, positions)

    def bprop(
        self, x: Tensor, table: Tensor, positions: Tensor, y: Tensor, dy: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        dtable, dpositions = self.gradient(x, dy, table, positions)
        return ops.zeros_like(x), dtable, dpositions


class Embedding(nn.Cell):
    """The row of a table for each character, plus the row of its position.

    Inputs: characters (N, T) int32; table (vocabulary, C); positions (T, C). Output: (N · T, C).

    Raises:
        ValueError: there are not as many positions as characters in a sample.
    """

    def __init__(self) -> None:
        super().__init__()
        self.fused = current_backend().library is not None
        if self.fused:
            self.embed = _FusedEmbedding()

    def construct(self, x: Tensor, table: Tensor, positions: Tensor) -> Tensor:
        if x.shape[1] != positions.shape[0]:
            raise ValueError(f"{x.shape[1]} characters in a sample, and {positions.shape[0]} positions")
        if self.fused and table.dtype == ms.float32:
            return self.embed(x.reshape(-1), table, positions)
        return (ops.gather(table, x, 0) + positions).reshape(-1, table.shape[1])
