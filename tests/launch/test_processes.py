"""Asking for a process's state while signals raise exceptions."""

import os
import random
import signal
import subprocess
import time
from contextlib import suppress

import pytest

from msaccel.launch.processes import StartedProcess


class Struck(Exception):
    pass


def test_an_exception_at_any_moment_leaves_it_to_be_ended() -> None:
    """10,000 such moments leave a `subprocess.Popen` with its lock taken."""

    def strike(*_: object) -> None:
        raise Struck

    process, draw = StartedProcess(["sleep", "300"]), random.Random(0)
    before = signal.signal(signal.SIGALRM, strike)
    try:
        for _ in range(10_000):
            with suppress(Struck):
                signal.setitimer(signal.ITIMER_REAL, draw.uniform(5e-6, 3e-5))
                for _ in range(100):
                    process.poll()
                time.sleep(1)
        assert process.poll() is None
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
        process.kill()
    assert process.wait(5) == -signal.SIGKILL and process.poll() == -signal.SIGKILL


def test_a_lock_that_stays_taken_is_in_nobodys_way() -> None:
    with StartedProcess(["sleep", "300"]) as process:
        process._waitpid_lock.acquire()
        process.kill()
        assert process.wait(5) == -signal.SIGKILL


def test_an_exit_code_that_was_lost_counts_as_killed() -> None:
    process = StartedProcess(["true"])
    os.waitpid(process.pid, 0)
    assert process.poll() == -signal.SIGKILL


def test_it_waits_no_longer_than_it_may() -> None:
    with StartedProcess(["sleep", "300"]) as process:
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(0.05)
        process.kill()
