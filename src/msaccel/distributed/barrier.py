"""A barrier without a time limit.

MindSpore's CPU collectives fail when a rank is 30 seconds late, and compiling, an evaluation or a slow MLflow server
can take longer than that. So ranks wait here before collectives that they may reach at very different times: each sends
a byte to the first rank over TCP and gets one back. Only connections that know the job's token are accepted.
"""

from __future__ import annotations

import socket
import time
from contextlib import closing

from msaccel.distributed.handshake import TokenListener, prove
from msaccel.errors import TrainingError

GONE = "another rank of the job is gone; see how that one ended."  # the message of a rank that is not itself the cause
_SECONDS_TO_CONNECT = 60.0


class Barrier:
    """All ranks of a job; the first one holds a connection to each of the others."""

    def __init__(self, connections: list[socket.socket], first: bool) -> None:
        self.connections, self.first = connections, first

    @classmethod
    def listen(cls, host: str) -> socket.socket:
        """A listening socket of the first rank, on a free port."""
        return socket.create_server((host, 0), backlog=1024)

    @classmethod
    def accept(cls, listener: socket.socket, others: int, token: str) -> Barrier:
        """The first rank's side: returns when the other ranks have connected."""
        connections: list[socket.socket] = []
        with closing(TokenListener(listener, token)) as admitted:
            while len(connections) < others:
                connections += admitted.poll()
                time.sleep(0.01)
        return cls([_without_delay(connection) for connection in connections], first=True)

    @classmethod
    def connect(cls, host: str, port: int, token: str) -> Barrier:
        """The side of any other rank.

        Raises:
            TrainingError: the first rank is gone.
        """
        until = time.monotonic() + _SECONDS_TO_CONNECT
        while True:
            connection = socket.socket()
            try:
                connection.connect((host, port))
                prove(connection, token)
            except OSError as error:  # the first rank closes the oldest of too many unproven connections
                connection.close()
                if time.monotonic() > until:
                    raise TrainingError(GONE) from error
                time.sleep(0.1)
            else:
                return cls([_without_delay(connection)], first=False)

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


def _without_delay(connection: socket.socket) -> socket.socket:
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return connection
