"""Makes denormal numbers zero in every thread, so that no result depends on which thread computes it.

MindSpore's worker threads take them for zero and its main thread does not, and which of them runs an operator depends
on the graph and on the machine: 0.9 multiplied by itself for 900 updates, as Adam does, was 0 in one process and 6e-45
in the next.
"""

from __future__ import annotations

import ctypes
import platform
import warnings

_ENVIRONMENT = ctypes.c_uint32 * 8  # C's fenv_t on x86-64
_MXCSR = 7  # its place in there
_FLUSH_TO_ZERO, _DENORMALS_ARE_ZERO = 1 << 15, 1 << 6


def flush_denormals() -> None:
    """Makes denormals zero in this thread and in all that it starts from now on.

    Call it before MindSpore starts its threads, and before NumPy is imported, if it is not yet.
    Only on x86-64 do MindSpore's threads differ from each other.
    """
    if platform.machine() == "x86_64":
        c, environment = ctypes.CDLL(None), _ENVIRONMENT()
        c.fegetenv(environment)
        environment[_MXCSR] |= _FLUSH_TO_ZERO | _DENORMALS_ARE_ZERO
        c.fesetenv(environment)
        warnings.filterwarnings("ignore", "The value of the smallest subnormal", UserWarning)  # NumPy's, which is right
