"""Connections between the launchers of a job's servers.

Messages are lines of JSON. Each side sends a heartbeat every two seconds, from a thread, since to start ranks can take
long; a silent side counts as gone.
"""

from __future__ import annotations

import json
import select
import socket
import time
from contextlib import suppress
from dataclasses import dataclass, field
from threading import Event, Lock, Thread
from typing import Any, NamedTuple

Message = dict[str, Any]
BEAT = 2.0  # seconds between heartbeats
SILENCE = 20.0  # seconds after which a server counts as gone
MAX_BYTES = 1 << 20  # bytes of a message


class JobOutcome(NamedTuple):
    """How a job ended, as servers tell each other: the status, and a sentence that says why it did not finish."""

    status: str
    message: str = ""


class Peer:
    """The other end of a connection."""

    def __init__(self, connection: socket.socket, server: int) -> None:
        self.connection, self.server = connection, server
        self.received = time.monotonic()
        self._sends = Lock()
        self._buffer = b""
        self._waiting: list[Message] = []

    def send(self, **message: Any) -> None:
        with self._sends:
            self.connection.settimeout(SILENCE)
            self.connection.sendall(json.dumps(message).encode() + b"\n")

    def receive(self, seconds: float) -> list[Message]:
        """Messages that have arrived, waiting at most so long for the first.

        Raises:
            ConnectionError: the other end is closed, or sends something else.
        """
        if self._waiting:
            waiting, self._waiting = self._waiting, []
            return waiting
        if not select.select([self.connection], [], [], max(seconds, 0))[0]:
            return []
        arrived = self.connection.recv(65536)
        self.received = time.monotonic()
        *lines, self._buffer = (self._buffer + arrived).split(b"\n")
        if not arrived:
            raise ConnectionError("it has closed the connection")
        if len(self._buffer) > MAX_BYTES:
            raise ConnectionError("it sent something that is not a message")
        try:
            return [message for message in map(json.loads, lines) if isinstance(message, dict)]
        except (ValueError, RecursionError) as error:
            raise ConnectionError("it sent something that is not a message") from error

    def receive_one(self, seconds: float) -> Message | None:
        """The next message, waiting at most so long; None if there is none by then."""
        until = time.monotonic() + seconds
        while not (messages := self.receive(until - time.monotonic())):
            if time.monotonic() >= until:
                return None
        self._waiting = messages[1:]
        return messages[0]


@dataclass
class Peers:
    """A server's connections to the others: server 0's to all, any other's to server 0; none if there are no others."""

    peers: list[Peer] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._closed = Event()
        for peer in self.peers:  # while the servers met, those that were there had nothing to say
            peer.received = time.monotonic()
        if self.peers:
            Thread(target=self._beat, daemon=True).start()

    def _beat(self) -> None:
        while not self._closed.wait(BEAT):
            self.broadcast(alive=True)

    def poll(self) -> JobOutcome | None:
        """How the job ended on another server, or None while it runs."""
        for peer in self.peers:
            try:
                for message in peer.receive(0):
                    if "status" in message:
                        return JobOutcome(str(message["status"]), str(message.get("message", "")))
                if time.monotonic() - peer.received > SILENCE:
                    raise ConnectionError("silent")
            except OSError:
                return JobOutcome("FAILED", f"server {peer.server} is gone.")
        return None

    def broadcast(self, **message: Any) -> None:
        """Sends a message to all, such as how the job ended here; those that are gone are left out."""
        for peer in self.peers:
            with suppress(OSError):
                peer.send(**message)

    def wait(self) -> JobOutcome:
        """How the job ended on another server, once it has."""
        while not (outcome := self.poll()):
            time.sleep(0.05)
        return outcome

    def close(self) -> None:
        self._closed.set()
        for peer in self.peers:
            with suppress(OSError), peer.connection as connection:
                connection.shutdown(socket.SHUT_WR)
                connection.settimeout(2)
                while connection.recv(65536):  # closing with unread data would drop what was sent last
                    pass
