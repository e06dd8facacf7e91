"""The process that forks workers: `python -m msaccel.training.fork_server DESCRIPTOR`, started by
`msaccel.launch.fork_client`.

It imports all that a job needs, and does nothing with it: each worker makes its own MindSpore context, device and
compiled graphs. A fork loses the threads of its parent; the only ones here belong to libraries that restart them
(OpenBLAS).
"""

from __future__ import annotations

import gc
import json
import os
import select
import signal
import socket
import sys
import warnings
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import NoReturn

from msaccel.launch.fork_client import LONGEST
from msaccel.training import worker

_MODULES = (
    "msaccel.training.job",
    "mlflow.store.tracking.sqlalchemy_store",  # imported when a SQLite store is opened
    "sqlalchemy.dialects.sqlite",
    "matplotlib.figure",  # imported at the end of a job, for the picture of the curves
    "matplotlib.backends.backend_agg",
)
_SECONDS = 0.05  # between two checks for workers that have ended


def serve(connection: socket.socket) -> None:
    """Forks a worker for each request and says how each ended, until the launcher is gone."""
    import_all()
    warnings.filterwarnings("ignore", "This process .* is multi-threaded", DeprecationWarning)  # Python 3.12, of forks
    workers: dict[int, socket.socket] = {}  # by process id: the socket on which the launcher is told of its end
    with suppress(BrokenPipeError, ConnectionResetError):
        while True:
            if select.select([connection], [], [], _SECONDS if workers else None)[0]:
                request, descriptors, _, _ = socket.recv_fds(connection, LONGEST, 3)
                if not request:
                    return
                pid = os.fork()
                if pid == 0:
                    for inherited in (connection, *workers.values()):  # a launcher notices our end as they close
                        inherited.close()
                    become_worker(request, *descriptors)
                for descriptor in (descriptors[0], *descriptors[2:]):
                    os.close(descriptor)
                os.setpgid(pid, pid)  # here too: the launcher may end the group before the worker runs
                workers[pid] = socket.socket(fileno=descriptors[1])
                connection.send(str(pid).encode())
            for pid in list(workers):
                ended, status = os.waitpid(pid, os.WNOHANG)
                if ended:
                    with workers.pop(pid) as launcher, suppress(BrokenPipeError):
                        launcher.send(str(os.waitstatus_to_exitcode(status)).encode())


def import_all() -> None:
    """Imports what a job would otherwise import as it runs."""
    gc.disable()
    for module in _MODULES:
        import_module(module)
    from sqlalchemy.orm import configure_mappers

    from msaccel.tracking.provenance import git_commit

    git_commit()
    configure_mappers()  # 0.1 s, which the first query of each worker would take
    gc.freeze()  # a garbage collection in a worker would copy the pages it shares with this process


def become_worker(request: bytes, stdin: int, launcher: int, *output: int) -> NoReturn:
    """Trains the job of the request in this process, to its end."""
    os.setpgid(0, 0)
    for descriptor, standard in [(stdin, 0), *((file, standard) for file in output for standard in (1, 2))]:
        os.dup2(descriptor, standard)
    for descriptor in (stdin, launcher, *output):
        os.close(descriptor)
    folder_of_launcher, folder, env = json.loads(request)
    os.chdir(folder_of_launcher)
    os.environ.update(env)
    with suppress(OSError):  # for `top`, since the command line is still the server's
        Path("/proc/self/comm").write_text(f"msaccel rank {env['MSACCEL_RANK']}")
    worker.run(folder)


if __name__ == "__main__":
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)  # a cluster sends them to all processes of a job; a worker listens again
    serve(socket.socket(fileno=int(sys.argv[1])))
    os._exit(0)  # as a worker does
