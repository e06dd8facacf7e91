"""A stack for signal handlers: a product of matrices may be using the stack pointer for something else.

On x86-64, code that oneDNN generates for products keeps the address of a buffer in the stack pointer. When a signal
comes, the system saves the thread's registers below that address, in memory that belongs to something else: two of five
signals made a dense layer's input gradient wrong, or the process crashed later. oneDNN 3.11.2 no longer does it
(https://github.com/uxlfoundation/oneDNN/issues/4845); MindSpore 2.10 comes with 3.10.1.
"""

from __future__ import annotations

import ctypes
import platform
import sys
import threading

_DISABLED = 2  # of `flags`: the thread has no such stack
_memory = ctypes.create_string_buffer(2**16)  # registers alone take 3 KB with AVX-512 and 11 KB with AMX


class _Stack(ctypes.Structure):
    """C's stack_t on Linux."""

    _fields_ = (("memory", ctypes.c_void_p), ("flags", ctypes.c_int), ("size", ctypes.c_size_t))


def provide_signal_stack() -> None:
    """Lets Python's signal handlers run on a stack of their own, unless they do already.

    Only in the main thread, to which the system gives a process's signals if it can.
    """
    if threading.current_thread() is not threading.main_thread():
        return
    if (sys.platform, platform.machine()) != ("linux", "x86_64"):
        return
    c, before = ctypes.CDLL(None), _Stack()
    c.sigaltstack(None, ctypes.byref(before))
    if before.flags & _DISABLED:
        c.sigaltstack(ctypes.byref(_Stack(ctypes.addressof(_memory), 0, len(_memory))), None)
