"""NVIDIA's driver and GPUs of this machine, queried in a short process of its own.

A process that has initialised CUDA must not fork afterwards, and the launcher does; so it never loads the driver.
"""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import dataclass
from functools import cache

_SECONDS = 30  # a machine whose cards were asleep takes several
_PROBE = """
import ctypes, json
def ask():
    try:
        cuda = ctypes.CDLL("libcuda.so.1")
    except OSError as error:
        return {"error": str(error)}
    if code := cuda.cuInit(0):
        return {"error": f"libcuda.so.1: cuInit fails with error {code}"}
    number, version = ctypes.c_int(), ctypes.c_int()
    cuda.cuDriverGetVersion(ctypes.byref(version))
    cuda.cuDeviceGetCount(ctypes.byref(number))
    cards = []
    for index in range(number.value):
        card, name, size = ctypes.c_int(), ctypes.create_string_buffer(256), ctypes.c_size_t()
        cuda.cuDeviceGet(ctypes.byref(card), index)
        cuda.cuDeviceGetName(name, 256, card)
        cuda.cuDeviceTotalMem_v2(ctypes.byref(size), card)
        cards.append((name.value.decode(errors="replace"), size.value))
    return {"cuda": version.value, "cards": cards}
print(json.dumps(ask()))
"""


@dataclass(frozen=True)
class NvidiaGpu:
    name: str
    memory: int  # bytes


@dataclass(frozen=True)
class NvidiaDriver:
    """The driver and the GPUs that this process may use; `error` says in a few words why there are none."""

    error: str = ""
    cuda: tuple[int, int] = (0, 0)  # the newest CUDA release it runs
    cards: tuple[NvidiaGpu, ...] = ()


@cache
def query() -> NvidiaDriver:
    """Queries once per process: 0.03 s without a driver; with one, as long as CUDA takes to start."""
    try:
        completed = subprocess.run([sys.executable, "-ISc", _PROBE], capture_output=True, text=True, timeout=_SECONDS)
    except subprocess.TimeoutExpired:
        return NvidiaDriver(f"libcuda.so.1: no answer within {_SECONDS} s")
    if completed.returncode:
        return NvidiaDriver(f"libcuda.so.1: a process that uses it ends with code {completed.returncode}")
    answer = json.loads(completed.stdout.splitlines()[-1])
    if "error" in answer:
        return NvidiaDriver(answer["error"])
    cards = tuple(NvidiaGpu(name, memory) for name, memory in answer["cards"])
    return NvidiaDriver("", (answer["cuda"] // 1000, answer["cuda"] % 1000 // 10), cards)
