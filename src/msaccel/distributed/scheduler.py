"""MindSpore's scheduler of a cluster: `python -m msaccel.distributed.scheduler`, started by the launcher.

The ranks register with it and learn each other's addresses. It ends with its launcher.
"""

from __future__ import annotations

import os
import threading

import mindspore as ms
from mindspore import communication


def _end_with_launcher() -> None:
    os.read(0, 1)  # nothing is ever written: returns when the launcher is gone
    os._exit(0)


if __name__ == "__main__":
    threading.Thread(target=_end_with_launcher, daemon=True).start()
    ms.set_device("CPU")
    communication.init("mccl")  # in the role MS_SCHED it stays here until the ranks are gone
