"""The process that trains: `python -m msaccel.training.worker FOLDER`, or a fork that has imported it
(`msaccel.training.fork_server`), started by `msaccel.launch.launcher`.

It ends with its launcher: the launcher holds the other end of standard input, and when that closes, this process is
interrupted as by a signal. The launcher itself sends SIGUSR1: in a cluster MindSpore uses SIGINT for itself, and also
sends SIGTERM to a rank when the cluster has lost another one.
"""

from __future__ import annotations

import logging
import os
import re
import select
import signal
import sys
import threading
import time
import traceback
from pathlib import Path
from types import FrameType
from typing import NoReturn

from msaccel.config.compose import load, register
from msaccel.devices.denormals import flush_denormals
from msaccel.distributed.barrier import GONE
from msaccel.errors import TrainingError, UserError, of_the_disk
from msaccel.launch import log
from msaccel.launch.job import Result
from msaccel.launch.job_folder import JobFolder
from msaccel.launch.outcome import OUT_OF_MEMORY
from msaccel.launch.processes import INTERRUPT
from msaccel.tracking import stopping
from msaccel.tracking.status import FAILED, FINISHED, KILLED
from msaccel.training.importing import importing

_log = logging.getLogger("msaccel.training.worker")  # __name__ is __main__
_SIGNALS = (signal.SIGTERM, signal.SIGINT, INTERRUPT)
# How C++, CUDA and MindSpore report a lack of memory.
_MEMORY = re.compile(r"bad_alloc|out of memory|memory isn't enough|alloc\w* (\w+ )*memory failed", re.IGNORECASE)
COLLECTIVES = ("AllReduce", "AllGather", "Broadcast")


def main(path: str) -> int:
    """Trains the job in the folder and writes how it ended there; returns the exit code."""
    listen()
    flush_denormals()
    threading.Thread(target=_end_with_launcher, daemon=True).start()
    folder = JobFolder(Path(path))
    rank = int(os.environ.get("MSACCEL_RANK", "0"))
    log.set_up(rank)
    _log.debug("rank %d: works in process %d", rank, os.getpid())
    task = folder.task()
    status, message, crashed = FAILED, "an error of msaccel's own, see the traceback above", True
    try:
        # Held to the end, and taken before MindSpore's slow import: whoever wants to resume the job sees that it runs.
        _held = folder.lock(f"rank-{rank}")
        if rank == 0:
            log.keep_in(folder.path)
        register()
        with importing():
            from msaccel.training import job  # MindSpore is imported with the signal handlers in place

        config = load(folder.config)
        if config.device.ranks > 1 and not config.device.simulated:
            signal.signal(signal.SIGTERM, _given_up)
        job.run(config, folder, task)
        status, message, crashed = FINISHED, "", False
    except KeyboardInterrupt:
        status, message, crashed = KILLED, "interrupted", False
    except UserError as error:
        message, crashed = str(error), str(error) == GONE
        if os.environ.get("MSACCEL_TRACEBACK"):
            raise
    except OSError as error:
        said = of_the_disk(error)
        if not said or os.environ.get("MSACCEL_TRACEBACK"):
            raise
        message, crashed = said, False
    except (MemoryError, RuntimeError) as error:
        if said := OUT_OF_MEMORY if _is_memory(error) else GONE if _lost_another(error) else "":
            message = said
        if not said or os.environ.get("MSACCEL_TRACEBACK"):
            raise
    finally:
        _leave(folder, rank, task.name, status, message, crashed)
    return 0 if status == FINISHED else 1


def _leave(folder: JobFolder, rank: int, name: str, status: str, message: str, crashed: bool) -> None:
    """Writes how this rank ended into the folder, or prints it if the disk is full."""
    try:
        folder.write(f"rank-{rank}.json", {"status": status, "message": message, "crashed": crashed})
        if rank == 0:
            run_id, uri = folder.mlflow_run()
            folder.finish(Result(name, status, run_id, uri, message))
    except OSError as error:
        _log.error("%s: %s %s (%s: %s)", name, status, message, error.strerror, folder.path)


def listen() -> None:
    """Lets a signal interrupt this process; later ones are ignored."""
    for number in _SIGNALS:
        signal.signal(number, _interrupt)
    sys.unraisablehook = _not_swallowed


def _not_swallowed(raised: sys.UnraisableHookArgs) -> None:
    """Interrupts again if the signal came while Python was in a destructor, where it ignores exceptions."""
    if isinstance(raised.exc_value, (KeyboardInterrupt, TrainingError)):
        signal.signal(signal.SIGALRM, _interrupt if isinstance(raised.exc_value, KeyboardInterrupt) else _given_up)
        signal.setitimer(signal.ITIMER_REAL, 0.01)
    else:
        sys.__unraisablehook__(raised)


def _end_with_launcher() -> None:
    os.read(0, 1)  # nothing is ever written: it returns when the launcher is gone
    if os.environ.get("MSACCEL_RANK", "0") == "0":
        os.kill(os.getpid(), INTERRUPT)
    # Meanwhile the other ranks still answer the first one, which logs what it has. A job in one process has twice the
    # time that a scheduler would leave it: nobody else ends it, and on a busy machine it may need that.
    time.sleep(2 * stopping.SECONDS_TO_END)
    os._exit(1)


def _interrupt(signal_number: int, frame: FrameType | None) -> None:
    _listen_no_more()
    if not stopping.ask():
        raise KeyboardInterrupt


def _given_up(signal_number: int, frame: FrameType | None) -> None:
    _listen_no_more()
    if select.select([0], [], [], 0)[0]:  # the launcher is gone, and the scheduler with it
        raise KeyboardInterrupt
    raise TrainingError(GONE)


def _listen_no_more() -> None:
    """Ignores further signals: a second one would cut off the logging that the first one starts."""
    for number in _SIGNALS:
        signal.signal(number, signal.SIG_IGN)


def _is_memory(error: Exception) -> bool:
    """Whether Python, one of our kernels or MindSpore did not get the memory it asked for."""
    return isinstance(error, MemoryError) or _MEMORY.search(str(error)) is not None


def _lost_another(error: Exception) -> bool:
    """Whether MindSpore reports a collective or a cluster that waited in vain for another rank."""
    said = str(error)
    return "distributed job cluster" in said or any(f"{name}-op" in said for name in COLLECTIVES)


def run(path: str) -> NoReturn:
    """Trains the job in the folder, and ends this process."""
    code = 1
    try:
        code = main(path)
    except KeyboardInterrupt:
        pass  # before the job was known, or after its end; its launcher, which interrupts, says so
    except BaseException:
        traceback.print_exc()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)  # all is written, and MindSpore takes two seconds to take its runtime apart


if __name__ == "__main__":
    run(sys.argv[1])
