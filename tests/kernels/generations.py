"""A script: prints a digest of what the loops compute for rows of all lengths, which is the same on every processor."""

import hashlib
import sys

import numpy as np

from msaccel.kernels.conv_shape import Geometry
from msaccel.kernels.pool import SAME
from tests.kernels.operators import call, gradients

LENGTHS = (*range(1, 34), 4095, 4113)
draw = np.random.default_rng(0).standard_normal


def values(*shape: int) -> np.ndarray:
    return draw(shape).astype(np.float32)


def batch_norm(length: int) -> list[np.ndarray]:
    x, dy, vectors = values(2, 3, 1, length), values(2, 3, 1, length), [*values(3, 3), values(3) ** 2]
    y, *found = np.zeros_like(x), *np.zeros((3, 3), np.float32)
    numbers, dx, of_vectors = np.array([1e-5, 0.1, 1], np.float32), np.zeros_like(x), np.zeros((2, 3), np.float32)
    call("batch_norm", x, *vectors, numbers, y, *found)
    call("batch_norm_gradient", dy, x, *vectors[:2], found[0], found[2], numbers, dx, *of_vectors)
    return [y, *vectors[2:], *found, dx, of_vectors]


def layer_norm(length: int) -> list[np.ndarray]:
    x, dy, gamma, beta = values(3, length), values(3, length), values(length), values(length)
    y, dx, rows, of_vectors = np.zeros_like(x), np.zeros_like(x), *(np.zeros((2, n), np.float32) for n in (3, length))
    call("layer_norm", x, gamma, beta, np.array([1e-5], np.float32), y, *rows)
    call("layer_norm_gradient", dy, x, gamma, *rows, dx, *of_vectors)
    return [y, rows, dx, of_vectors]


def elementwise(length: int) -> list[np.ndarray]:
    x, dy = values(1, length), values(1, length)
    found = []
    for activation in ("gelu", "gelu_tanh", "silu"):
        y, dx = np.zeros((2, 1, length), np.float32)
        call(activation, x, y)
        call(f"{activation}_gradient", x, dy, dx)
        found += [y, dx]
    combined, norm = np.zeros_like(x), np.zeros(1, np.float32)
    call("adasum", np.array([2], np.int32), x, dy, combined)
    call("global_norm", x, norm)
    return [*found, combined, norm]


def grouped(length: int) -> list[np.ndarray]:
    geometry = Geometry((1, 7), (1, 2), (1, 1), (0, 0, 3, 3), 2)
    shapes = (2, 2, 1, length), (2, 1, 1, 7), (2, 2, *geometry.out_size(1, length))
    x, weight, dy = (values(*shape) for shape in shapes)
    return gradients(x, weight, [values(2)], dy, geometry)[1:]


def depthwise(length: int) -> list[np.ndarray]:
    geometry, width = Geometry((2, 5), (1, 1), (2, 1), (1, 1, 2, 2), 19), length % 20 + 1
    shapes = (2, 19, 6, width), (19, 1, 2, 5), (2, 19, *geometry.out_size(6, width))
    x, weight, dy = (values(*shape) for shape in shapes)
    return gradients(x, weight, [values(19)], dy, geometry)[1:]


def channels(length: int) -> list[np.ndarray]:
    x, dy, factor = values(2, 3, 1, length), values(2, 3, 1, length), values(2, 3, 1, 1)
    mean, y, dx, dfactor = np.zeros_like(factor), np.zeros_like(x), np.zeros_like(x), np.zeros_like(factor)
    call("channel_mean", x, mean)
    call("channel_scale", x, factor, y)
    call("channel_scale_gradient", dy, x, factor, dx, dfactor)
    return [mean, y, dx, dfactor]


def pooling(length: int) -> list[np.ndarray]:
    x, found = values(2, 1, 3, length), []
    for stride in (1, 2, 3):
        y = np.zeros((2, 1, -(-3 // stride), -(-length // stride)), np.float32)
        taps = np.zeros(y.shape, np.uint8)
        call("max_pool", x, np.array([3, stride, SAME, 0], np.int32), y, taps)
        found += [y, taps]
    return found


digest = hashlib.sha256()
for length in LENGTHS:
    for compute in (batch_norm, layer_norm, elementwise, grouped, depthwise, channels, pooling):
        for array in compute(length):
            digest.update(array.tobytes())
sys.stdout.write(digest.hexdigest())
