"""Connections between the launchers of a job's servers: what is said, and what silence means.

Messages are lines of JSON. Each side says every other second that it is there.
"""

from __future__ import annotations

import json
import socket
import time
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

Message = dict[str, Any]
BEAT = 2.0  # seconds between signs of life
SILENCE = 20.0  # seconds after which a server counts as gone
LONGEST = 1 << 20  # bytes of a message


class Peer:
    """The other end of a connection."""

    def __init__(self, connection: socket.socket, server: int) -> None:
        self.connection, self.server = connection, server
        self.heard = self.said = time.monotonic()
        self._buffer = b""
        self._waiting: list[Message] = []

    def say(self, **message: Any) -> None:
        self.connection.settimeout(SILENCE)
        self.connection.sendall(json.dumps(message).encode() + b"\n")
        self.said = time.monotonic()

    def hear(self, seconds: float) -> list[Message]:
        """Messages that have arrived, waiting at most so long for the first.

        Raises:
            ConnectionError: the other end is closed, or says what is no message.
        """
        if self._waiting:
            waiting, self._waiting = self._waiting, []
            return waiting
        self.connection.settimeout(max(seconds, 0.001))
        try:
            arrived = self.connection.recv(65536)
        except (TimeoutError, BlockingIOError):
            return []
        self.heard = time.monotonic()
        *lines, self._buffer = (self._buffer + arrived).split(b"\n")
        if not arrived:
            raise ConnectionError("it has closed the connection")
        if len(self._buffer) > LONGEST:
            raise ConnectionError("it says what is no message")
        try:
            return [message for message in map(json.loads, lines) if isinstance(message, dict)]
        except (ValueError, RecursionError) as error:
            raise ConnectionError("it says what is no message") from error

    def first(self, seconds: float) -> Message | None:
        """The next message, waiting at most so long; None if there is none by then."""
        until = time.monotonic() + seconds
        while not (messages := self.hear(until - time.monotonic())):
            if time.monotonic() >= until:
                return None
        self._waiting = messages[1:]
        return messages[0]


@dataclass
class Peers:
    """A server's connections to the others: server 0's to all, any other's to server 0; none if there are no others."""

    peers: list[Peer] = field(default_factory=list)

    def trouble(self) -> dict[str, str] | None:
        """How the job ended elsewhere, as `status` and `message`, or None while it goes on."""
        for peer in self.peers:
            try:
                for message in peer.hear(0):
                    if "status" in message:
                        return {key: str(message.get(key, "")) for key in ("status", "message")}
                if time.monotonic() - peer.heard > SILENCE:
                    raise ConnectionError("silent")
                if time.monotonic() - peer.said > BEAT:
                    peer.say(alive=True)
            except OSError:
                return {"status": "FAILED", "message": f"server {peer.server} is gone."}
        return None

    def tell(self, **ended: Any) -> None:
        """Says how the job ended here."""
        for peer in self.peers:
            with suppress(OSError):
                peer.say(**ended)

    def end(self) -> dict[str, str]:
        """What the other side says at the end, waiting for as long as it is there."""
        while not (ended := self.trouble()):
            time.sleep(0.05)
        return ended

    def close(self) -> None:
        for peer in self.peers:
            with suppress(OSError), peer.connection as connection:
                connection.shutdown(socket.SHUT_WR)
                connection.settimeout(2)
                while connection.recv(65536):  # closed with something unread, it would take back what was said last
                    pass
