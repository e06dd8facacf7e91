"""The process that forks workers: `python -m msaccel.training.fork_server DESCRIPTOR`, started by
`msaccel.launch.forked`.

It has imported all that a job needs, and does nothing with it: MindSpore's context, device and compiled graphs are made
in each worker anew, and no thread but those of libraries that restart them after a fork (OpenBLAS) is there to be lost.
"""

from __future__ import annotations

import gc
import json
import os
import signal
import socket
import sys
from contextlib import suppress
from importlib import import_module
from typing import NoReturn

from msaccel.launch.forked import LONGEST
from msaccel.training import worker

_MODULES = (
    "msaccel.training.job",
    "mlflow.store.tracking.sqlalchemy_store",  # these follow when a SQLite store is opened
    "sqlalchemy.dialects.sqlite",
    "matplotlib.figure",  # these at the end, for the picture of the curves
    "matplotlib.backends.backend_agg",
)


def serve(connection: socket.socket) -> None:
    """Forks a worker for each request, one after the other, until the launcher is gone."""
    import_all()
    with suppress(BrokenPipeError, ConnectionResetError):
        while True:
            request, descriptors, _, _ = socket.recv_fds(connection, LONGEST, 1)
            if not request:
                return
            pid = os.fork()
            if pid == 0:
                connection.close()  # by which the launcher notices that the server was killed
                become_worker(request, descriptors[0])
            os.close(descriptors[0])
            os.setpgid(pid, pid)  # here too: the launcher may end the group before the worker runs
            connection.send(str(pid).encode())
            status = os.waitpid(pid, 0)[1]
            connection.send(str(os.waitstatus_to_exitcode(status)).encode())


def import_all() -> None:
    """Imports what a job would import on its way."""
    gc.disable()
    for module in _MODULES:
        import_module(module)
    from sqlalchemy.orm import configure_mappers

    from msaccel.tracking.provenance import git_commit

    git_commit()
    configure_mappers()  # 0.1 s, which the first query of each worker would take
    gc.freeze()  # a collection in a worker would copy the pages that they share


def become_worker(request: bytes, stdin: int) -> NoReturn:
    """Trains the job of the request in this process, to its end."""
    os.setpgid(0, 0)
    os.dup2(stdin, 0)
    os.close(stdin)
    folder_of_launcher, folder = json.loads(request)
    os.chdir(folder_of_launcher)
    worker.run(folder)


if __name__ == "__main__":
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)  # a cluster sends them to all processes of a job; a worker listens again
    serve(socket.socket(fileno=int(sys.argv[1])))
    os._exit(0)  # as a worker does
