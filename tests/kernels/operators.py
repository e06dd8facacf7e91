"""Calls the native operators as MindSpore does, but without compiling a graph for every shape."""

import ctypes
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache

import numpy as np
from numpy.typing import NDArray

from msaccel.kernels import build, processor
from msaccel.kernels.conv_shape import Geometry
from msaccel.kernels.processor import block

Array = NDArray[np.floating]
SIZE = block() or 8  # of a block of channels
HAS_AMX = "amx_bf16" in processor._features()


@cache
def library() -> ctypes.CDLL:
    ctypes.CDLL(str(build.onednn()))
    return ctypes.CDLL(str(build.library()))


def call(name: str, *tensors: Array) -> None:
    """Calls an operator with its inputs, then its outputs. An error ends the process: C++ exceptions are not caught.

    Arrays of uint16 are passed as bfloat16, which NumPy lacks.
    """
    count = len(tensors)
    assert all(tensor.flags.c_contiguous for tensor in tensors)
    shapes = [(ctypes.c_int64 * tensor.ndim)(*tensor.shape) for tensor in tensors]
    code = getattr(library(), f"msaccel_{name}")(
        count,
        (ctypes.c_void_p * count)(*(tensor.ctypes.data for tensor in tensors)),
        (ctypes.c_int * count)(*(tensor.ndim for tensor in tensors)),
        (ctypes.c_void_p * count)(*(ctypes.addressof(shape) for shape in shapes)),
        (ctypes.c_char_p * count)(*(str(tensor.dtype).replace("uint16", "bfloat16").encode() for tensor in tensors)),
        None,
        None,
    )
    assert code == 0


def numbers(geometry: Geometry, products: int = 0) -> NDArray[np.int32]:
    return np.array((*geometry.numbers, products), np.int32)


def blocks(x: Array) -> Array:
    """(n, c, h, w) as (n, c / 16, h, w, 16), with 8 in place of 16 where the processor has no AVX-512."""
    n, c, height, width = x.shape
    return np.ascontiguousarray(x.reshape(n, c // SIZE, SIZE, height, width).transpose(0, 1, 3, 4, 2))


def as_laid(x: Array, weight: Array, dy: Array, geometry: Geometry) -> list[Array]:
    """y, dx and dweight of a convolution, in the layouts of dy and x: plain or in blocks."""
    y, dx, dweight = (np.full_like(tensor, np.nan) for tensor in (dy, x, weight))
    call("convolution", x, weight, numbers(geometry), y)
    call("convolution_input_gradient", dy, weight, x, numbers(geometry), dx)
    call("convolution_weight_gradient", x, dy, weight, numbers(geometry), dweight)
    return [y, dx, dweight]


def forward(x: Array, weight: Array, bias: Sequence[Array], geometry: Geometry) -> Array:
    y = np.full((len(x), len(weight), *geometry.out_size(*x.shape[2:])), np.nan, x.dtype)
    call("convolution", x, weight, *bias, numbers(geometry), y)
    return y


def gradients(x: Array, weight: Array, bias: Sequence[Array], dy: Array, geometry: Geometry) -> list[Array]:
    """dx, dweight and, with a bias, dbias."""
    dx, *dweights = (np.full_like(tensor, np.nan) for tensor in (x, weight, *bias))
    call("convolution_input_gradient", dy, weight, x, numbers(geometry), dx)
    call("convolution_weight_gradient", x, dy, weight, numbers(geometry), *dweights)
    return [dx, *dweights]


def plans() -> int:
    return int(library().msaccel_plans())


def limit_plans(most: int) -> None:
    library().msaccel_limit_plans(ctypes.c_size_t(most))


def forget_plans() -> None:
    limit_plans(0)
    limit_plans(512)


@contextmanager
def multiplying_tiles(wanted: bool) -> Iterator[None]:
    """Whether convolutions in bfloat16 are computed as for AMX, with which they are by default; forgets all plans."""
    library().msaccel_multiply_tiles(int(wanted))
    forget_plans()
    yield
    library().msaccel_multiply_tiles(int(HAS_AMX))
    forget_plans()
