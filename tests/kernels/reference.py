"""Reference convolution and its gradients in NumPy and float64, on strided views of the padded input."""

import numpy as np
from numpy.lib.stride_tricks import as_strided
from numpy.typing import NDArray

from msaccel.kernels.conv_shape import Geometry

Array = NDArray[np.float64]


def padded(x: Array, geometry: Geometry) -> Array:
    sides = (geometry.padding, geometry.padding)
    return np.pad(np.asarray(x, float), ((0, 0), (0, 0), sides, sides))


def windows(x: Array, geometry: Geometry) -> Array:
    """(n, c, h, w) to (n, g, c / g, h', w', k, k), without copying the padded input."""
    n, c, height, width = x.shape
    whole, k, g = padded(x, geometry), geometry.kernel_size, geometry.groups
    batch, channel, row, column = whole.strides
    steps = (row * geometry.stride, column * geometry.stride, row * geometry.dilation, column * geometry.dilation)
    shape = (n, g, c // g, *geometry.out_size(height, width), k, k)
    return as_strided(whole, shape, (batch, channel * (c // g), channel, *steps), writeable=False)


def parted(weight: Array, geometry: Geometry) -> Array:
    o, *rest = weight.shape
    return np.asarray(weight, float).reshape(geometry.groups, o // geometry.groups, *rest)


def forward(x: Array, weight: Array, geometry: Geometry) -> Array:
    y = np.einsum("ngchwij,gocij->ngohw", windows(x, geometry), parted(weight, geometry), optimize=True)
    return y.reshape(len(x), len(weight), *y.shape[3:])


def gradients(x: Array, weight: Array, dy: Array, geometry: Geometry) -> tuple[Array, Array]:
    """Of sum(dy · y), by x and by weight."""
    n, c, height, width = x.shape
    g, padding, stride = geometry.groups, geometry.padding, geometry.stride
    dy = np.asarray(dy, float).reshape(n, g, -1, *dy.shape[2:])
    dweight = np.einsum("ngchwij,ngohw->gocij", windows(x, geometry), dy, optimize=True).reshape(weight.shape)
    taps = np.einsum("ngohw,gocij->ngchwij", dy, parted(weight, geometry), optimize=True)
    taps = taps.reshape(n, c, *taps.shape[3:])
    dx = np.zeros_like(padded(x, geometry))
    rows, columns = (stride * (size - 1) + 1 for size in taps.shape[2:4])
    for i in range(geometry.kernel_size):
        for j in range(geometry.kernel_size):
            top, left = i * geometry.dilation, j * geometry.dilation
            dx[:, :, top : top + rows : stride, left : left + columns : stride] += taps[..., i, j]
    return dx[:, :, padding : padding + height, padding : padding + width], dweight
