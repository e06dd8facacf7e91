"""The decoder-only transformer of nanoGPT (https://github.com/karpathy/nanoGPT), after GPT-2.

Layer norm stands before attention and before the dense layers, with a scale and no shift; dense layers have no bias
(nanoGPT's `bias=False`). Weights are Normal(0.02), and in the two layers that end on the residual path
Normal(0.02 / √(2 · layers)). GELU is computed by its approximation with tanh, as in GPT-2.
"""

from __future__ import annotations

import math
from functools import lru_cache

import mindspore as ms
import numpy as np
from mindspore import Parameter, Tensor, nn, ops
from mindspore.common.initializer import Normal, initializer

from msaccel.kernels import BatchProduct, CausalAttention, Dense, Embedding, Gelu, LayerNorm, current_backend
from msaccel.models.gpt import GptSettings
from msaccel.models.gpt.dropout import BlockKeys, Dropout
from msaccel.models.initialisers import initialiser

SIGMA = 0.02
MASKED = -6e4  # added to the score of a later character, whose weight becomes 0; it fits into float16


@ops.constexpr
@lru_cache(maxsize=1)
def mask(block: int) -> Tensor:
    """What is added to the scores (T, T): made when a graph that reads it is compiled, once for all layers."""
    return Tensor(np.triu(np.full((block, block), MASKED, np.float32), 1))


class Attention(nn.Cell):
    """Causal self-attention of one or more heads: (N · T, C) to the same shape."""

    def __init__(self, model: GptSettings, sigma: float, place: int) -> None:
        super().__init__()
        self.heads, self.block, self.size = model.heads, model.block, model.width // model.heads
        self.qkv = Dense(model.width, 3 * model.width, has_bias=False, weight_init=Normal(sigma))
        self.out = Dense(model.width, model.width, has_bias=False, weight_init=residual(sigma, model))
        self.scores, self.mix = BatchProduct(transpose_b=True), BatchProduct()
        self.drop = Dropout(model.dropout, place, model.heads * model.block**2)
        self.fused = current_backend().library is not None
        if self.fused:
            self.attend = CausalAttention(model.heads, model.block)

    def construct(self, x: Tensor, keys: Tensor) -> Tensor:
        qkv = self.qkv(x)
        if self.fused and qkv.dtype == ms.float32 and (self.drop.rate == 0 or not self.training):
            return self.out(self.attend(qkv))
        shape = (-1, self.block, 3, self.heads, self.size)
        q, k, v = ops.unstack(qkv.reshape(shape).transpose(2, 0, 3, 1, 4), axis=0)
        scores = self.scores(q * self.size**-0.5, k).astype(ms.float32) + mask(self.block)
        weights = self.drop(ops.softmax(scores, -1), keys).astype(v.dtype)
        return self.out(self.mix(weights, v).transpose(0, 2, 1, 3).reshape(x.shape))


class Block(nn.Cell):
    """Attention, then two dense layers, each added to its input (N · T, C)."""

    def __init__(self, model: GptSettings, sigma: float, number: int) -> None:
        super().__init__()
        width, place = model.width, 3 * number + 1
        self.norm1, self.norm2 = LayerNorm(width), LayerNorm(width)
        self.attention = Attention(model, sigma, place)
        self.wide = Dense(width, 4 * width, has_bias=False, weight_init=Normal(sigma))
        self.gelu = Gelu()
        self.narrow = Dense(4 * width, width, has_bias=False, weight_init=residual(sigma, model))
        self.drop1, self.drop2 = (Dropout(model.dropout, place + more, model.block * width) for more in (1, 2))

    def construct(self, x: Tensor, keys: Tensor) -> Tensor:
        x = x + self.drop1(self.attention(self.norm1(x), keys), keys)
        return x + self.drop2(self.narrow(self.gelu(self.wide(self.norm2(x)))), keys)


class Gpt(nn.Cell):
    """Characters (N, T) int32 to logits (N, T, vocabulary) of the character that follows each."""

    def __init__(self, model: GptSettings) -> None:
        super().__init__()
        assert model.classes is not None, "the data gives them"
        init = initialiser(model.init)
        sigma = init.sigma if init else SIGMA
        self.vocabulary = model.classes
        self.embedding = Parameter(initializer(Normal(sigma), (model.classes, model.width)))
        self.positions = Parameter(initializer(Normal(sigma), (model.block, model.width)))
        self.embed = Embedding()
        self.keys = BlockKeys(model.block, ms.get_seed() or 0)
        self.drop = Dropout(model.dropout, 0, model.block * model.width)
        self.blocks = nn.CellList([Block(model, sigma, number) for number in range(model.layers)])
        self.norm = LayerNorm(model.width)
        self.head = Dense(model.width, model.classes, has_bias=False, weight_init=Normal(sigma))
        if model.tied:
            self.head.weight = self.embedding

    def construct(self, x: Tensor) -> Tensor:
        keys = self.keys(x)
        y = self.drop(self.embed(x, self.embedding, self.positions), keys)
        for block in self.blocks:
            y = block(y, keys)
        return self.head(self.norm(y)).reshape(*x.shape, self.vocabulary)

    def undecayed(self) -> frozenset[str]:
        """Names of the parameters without weight decay: all but the matrices, as in nanoGPT."""
        return frozenset(weight.name for weight in self.trainable_params() if weight.ndim < 2)

    def outer(self) -> frozenset[str]:
        """Names of the weights of the first and the last layers: both embeddings and the layer of the classes."""
        return frozenset(weight.name for weight in (self.embedding, self.positions, self.head.weight))


def residual(sigma: float, model: GptSettings) -> Normal:
    """The initialiser of a layer that ends on the residual path."""
    return Normal(sigma / math.sqrt(2 * model.layers))
