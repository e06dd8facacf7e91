"""Connections between ranks, and a barrier over them without a time limit.

MindSpore's CPU collectives fail when a rank is 30 seconds late, and compiling, an evaluation or a slow MLflow server
can take longer than that. So ranks wait here before collectives that they may reach at very different times: each sends
a byte to the first rank over TCP and gets one back. Only connections that know the job's token are accepted.
"""

from __future__ import annotations

import socket
import time
from contextlib import ExitStack, closing

from msaccel.distributed.handshake import TokenListener, prove
from msaccel.errors import TrainingError

GONE = "another rank of the job is gone; see how that one ended."  # the message of a rank that is not itself the cause
_SECONDS_TO_CONNECT = 60.0


def listen(host: str) -> socket.socket:
    """A listening socket on a free port."""
    family = socket.getaddrinfo(host, 0, type=socket.SOCK_STREAM)[0][0]
    return socket.create_server((host, 0), family=family, backlog=1024)


def accept(listener: socket.socket, count: int, token: str) -> list[socket.socket]:
    """Returns when so many ranks have connected and proven that they know the token; closes the listener.

    Raises:
        TrainingError: one of them is gone.
    """
    connections, until = list[socket.socket](), time.monotonic() + _SECONDS_TO_CONNECT
    with closing(TokenListener(listener, token)) as admitted:
        while len(connections) < count:
            connections += admitted.poll()
            if time.monotonic() > until:
                raise TrainingError(GONE)
            time.sleep(0.01)
    return [_configured(connection) for connection in connections]


def connect(host: str, port: int, token: str) -> socket.socket:
    """A connection to the rank that listens there.

    Raises:
        TrainingError: it is gone.
    """
    until = time.monotonic() + _SECONDS_TO_CONNECT
    while True:
        try:
            connection = socket.create_connection((host, port))
            with ExitStack() as on_failure:
                on_failure.callback(connection.close)
                prove(connection, token)
                on_failure.pop_all()
        except OSError as error:  # the one that listens closes the oldest of too many unproven connections
            if time.monotonic() > until:
                raise TrainingError(GONE) from error
            time.sleep(0.1)
        else:
            return _configured(connection)


class Barrier:
    """All ranks of a job; the first one holds a connection to each of the others."""

    def __init__(self, connections: list[socket.socket], first: bool) -> None:
        self.connections, self.first = connections, first

    def wait(self) -> None:
        """Returns when all ranks have called it.

        Raises:
            TrainingError: a rank is gone.
        """
        try:
            if self.first:
                self._receive()
                self._send()
            else:
                self._send()
                self._receive()
        except OSError as error:
            raise TrainingError(GONE) from error

    def _send(self) -> None:
        for connection in self.connections:
            connection.sendall(b".")

    def _receive(self) -> None:
        for connection in self.connections:
            if not connection.recv(1):
                raise ConnectionError("closed")


def _configured(connection: socket.socket) -> socket.socket:
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)  # a machine that lost its power says nothing
    for option, value in (("TCP_KEEPIDLE", 10), ("TCP_KEEPINTVL", 5), ("TCP_KEEPCNT", 3)):  # seconds, seconds, times
        if hasattr(socket, option):
            connection.setsockopt(socket.IPPROTO_TCP, getattr(socket, option), value)
    return connection
