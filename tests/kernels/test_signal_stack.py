"""Signals leave the numbers of a computation alone."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from msaccel import kernels
from tests.running import ROOT

# A dense layer's input gradient is a product of matrices by oneDNN. Without a stack for signal handlers two of five
# signals make one wrong, or the process crashes.
SIGNALLED = """
import signal
import threading
import time

import numpy as np
from tests.kernels.operators import call

from msaccel import kernels

kernels.use_backend(kernels.select_backend("onednn", on_cpu=True))
signals = []
signal.signal(signal.SIGUSR1, lambda *_: signals.append(1))
draw = np.random.default_rng(0).standard_normal
dy, y, weight, x = (draw(shape).astype(np.float32) for shape in [(32, 512), (32, 512), (512, 784), (32, 784)])


def gradient():
    dx = np.empty_like(x)
    call("dense_input_gradient", dy, y, weight, x, np.zeros(2, np.int32), dx)
    return dx


def send():  # to the main thread alone: a timer's signal goes to another thread while this one handles the last
    while len(signals) < 100:
        time.sleep(0.01)
        signal.pthread_kill(threading.main_thread().ident, signal.SIGUSR1)


expected, wrong = gradient(), 0
sender = threading.Thread(target=send)
sender.start()
while sender.is_alive():
    wrong += not np.array_equal(gradient(), expected)
print(len(signals) > 50, wrong)
"""


@pytest.mark.parametrize("threads", [1, 2])
def test_signals_do_not_change_a_product(threads: int) -> None:
    kernels.select_backend("onednn", on_cpu=True)  # built once, with this process's time limit
    command, env = [sys.executable, "-c", SIGNALLED], {**os.environ, "OMP_NUM_THREADS": str(threads)}
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, env=env, timeout=300)
    assert (done.returncode, done.stdout) == (0, "True 0\n"), done.stderr
