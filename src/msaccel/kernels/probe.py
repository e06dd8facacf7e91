"""Tests whether a built library works here: `python probe.py LIBRARY LIBDNNL`, in a process of its own that may crash.

`build.py` runs this file by its path, so that nothing else is imported.
"""

from __future__ import annotations

import ctypes
import sys


def main(library: str, dnnl: str) -> int:
    """Convolves 1, 2, 3, 4 with twos, which must give 20. Returns the exit code; prints why it is not 0."""
    ctypes.CDLL(dnnl)
    operators = ctypes.CDLL(library)
    operators.msaccel_obstacle.restype = ctypes.c_char_p
    if obstacle := operators.msaccel_obstacle():
        print(obstacle.decode())
        return 1
    shapes = [(1, 1, 2, 2), (1, 1, 2, 2), (10,), (1, 1, 1, 1)]
    x, weight, y = (ctypes.c_float * 4)(1, 2, 3, 4), (ctypes.c_float * 4)(2, 2, 2, 2), (ctypes.c_float * 1)()
    geometry = (ctypes.c_int32 * 10)(1, 1, 1, 1, 1, 0, 0, 0, 0, 0)
    data = (ctypes.c_void_p * 4)(*(ctypes.addressof(array) for array in (x, weight, geometry, y)))
    ranks = (ctypes.c_int * 4)(*map(len, shapes))
    sizes = [(ctypes.c_int64 * len(shape))(*shape) for shape in shapes]
    pointers = (ctypes.c_void_p * 4)(*(ctypes.addressof(size) for size in sizes))
    types = (ctypes.c_char_p * 4)(b"float32", b"float32", b"int32", b"float32")
    operators.msaccel_convolution(4, data, ranks, pointers, types, None, None)
    if y[0] != 20:
        print(f"a convolution gave {y[0]}, not 20")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
