"""Reference convolution and its gradients in NumPy and float64, on strided views of the padded input."""

import numpy as np
from numpy.lib.stride_tricks import as_strided
from numpy.typing import NDArray

from msaccel.kernels.conv_shape import Geometry

Array = NDArray[np.float64]


def padding(geometry: Geometry, height: int, width: int) -> tuple[tuple[int, int], tuple[int, int]]:
    """Zeros at the top and the bottom, and at the left and the right."""
    if geometry.padding:
        top, bottom, left, right = geometry.padding
        return (top, bottom), (left, right)
    sides = []
    for side, size in enumerate((height, width)):
        stride, reach = geometry.stride[side], geometry.dilation[side] * (geometry.kernel[side] - 1)
        last = int(np.ceil(size / stride) - 1) * stride + reach  # that the last position reads
        missing = max(0, last + 1 - size)
        sides.append((missing // 2, missing - missing // 2))
    return sides[0], sides[1]


def padded(x: Array, geometry: Geometry) -> Array:
    return np.pad(np.asarray(x, float), ((0, 0), (0, 0), *padding(geometry, *x.shape[2:])))


def windows(x: Array, geometry: Geometry) -> Array:
    """(n, c, h, w) to (n, g, c / g, h', w', kh, kw), without copying the padded input."""
    n, c, height, width = x.shape
    whole, g = padded(x, geometry), geometry.groups
    batch, channel, row, column = whole.strides
    (down, right), (apart_down, apart_right) = geometry.stride, geometry.dilation
    steps = (row * down, column * right, row * apart_down, column * apart_right)
    shape = (n, g, c // g, *geometry.out_size(height, width), *geometry.kernel)
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
    dy = np.asarray(dy, float).reshape(n, geometry.groups, -1, *dy.shape[2:])
    dweight = np.einsum("ngchwij,ngohw->gocij", windows(x, geometry), dy, optimize=True).reshape(weight.shape)
    taps = np.einsum("ngohw,gocij->ngchwij", dy, parted(weight, geometry), optimize=True)
    taps = taps.reshape(n, c, *taps.shape[3:])
    dx = np.zeros_like(padded(x, geometry))
    (down, right), (apart_down, apart_right) = geometry.stride, geometry.dilation
    rows, columns = down * (taps.shape[2] - 1) + 1, right * (taps.shape[3] - 1) + 1
    for i in range(geometry.kernel[0]):
        for j in range(geometry.kernel[1]):
            top, left = i * apart_down, j * apart_right
            dx[:, :, top : top + rows : down, left : left + columns : right] += taps[..., i, j]
    (top, _), (left, _) = padding(geometry, height, width)
    return dx[:, :, top : top + height, left : left + width], dweight
