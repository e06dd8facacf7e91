"""Dropout whose random numbers are a function of the characters in a block.

A generator with a state would have to be saved with a job, and would draw other numbers for other micro-batches or
ranks. Here a block's numbers follow from a hash of its characters: the same in every process, but different in the next
epoch, whose blocks begin elsewhere.
"""

from __future__ import annotations

from functools import cache

import mindspore as ms
import numpy as np
from mindspore import Tensor, nn, ops

_HALF = 1 << 16
_ODD = (0x7FEB352D, 0x846CA68B - (1 << 32))  # the multipliers of lowbias32 (https://github.com/skeeto/hash-prospector)


def _hashed(bits: Tensor) -> Tensor:
    """Hashes each int32: the upper half is mixed into the lower one, and a multiplication carries that up."""
    for factor in _ODD:
        bits = _folded(bits) * factor
    return _folded(bits)


def _folded(bits: Tensor) -> Tensor:
    """x ^ (x >> 16), with the bits taken as unsigned."""
    return ops.bitwise_xor(bits, ops.bitwise_and(ops.floor_div(bits, _HALF), _HALF - 1))


class BlockKeys(nn.Cell):
    """A number for each block: characters (N, T) int32 to (N, 1) int32."""

    def __init__(self, block: int, seed: int) -> None:
        super().__init__()
        self.weights = Tensor(np.random.default_rng(seed).integers(-(2**31), 2**31, block, np.int32) | 1)

    def construct(self, x: Tensor) -> Tensor:
        # Of the upper halves alone, since a sum saturates in MindSpore.
        return ops.floor_div(_hashed(x + 1) * self.weights, _HALF).sum(1, keepdims=True, dtype=ms.int32)


@ops.constexpr
@cache
def numbers(place: int, size: int) -> Tensor:
    """Random int32 for the values of a block: made when a graph that reads them is compiled, which is only training."""
    return Tensor(np.random.default_rng(place).integers(-(2**31), 2**31, size, np.int32))


class Dropout(nn.Cell):
    """Sets a share of the values to zero in training, and scales the others up.

    Args:
        rate: that share; with 0 nothing is computed.
        place: its position in the network; each position has its own random numbers.
        size: the number of values of a block.

    Inputs: x of N · size values; keys (N, 1).
    """

    def __init__(self, rate: float, place: int, size: int) -> None:
        super().__init__()
        self.rate, self.scale, self.least = rate, 1 / (1 - rate), int(2**32 * rate) - 2**31
        self.place, self.size = place, size

    def construct(self, x: Tensor, keys: Tensor) -> Tensor:
        if self.rate == 0 or not self.training:
            return x
        kept = _hashed(_hashed(keys) + numbers(self.place, self.size)) >= self.least
        return x * (kept.astype(x.dtype) * self.scale).reshape(x.shape)
