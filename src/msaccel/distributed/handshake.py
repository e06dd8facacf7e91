"""Who may connect to a job: both ends of a connection prove that they know the job's token, without sending it.

The end that listens sends 32 random bytes; the one that connects answers with 32 of its own and a digest (HMAC-SHA-256)
of both by the token, and gets another digest back. Until its proof a connection may send 64 bytes and take `SECONDS`.
Connections that do not prove it are closed without a word, and delay nobody.
"""

from __future__ import annotations

import hmac
import os
import secrets
import socket
import time
from contextlib import suppress
from dataclasses import dataclass, field

VARIABLE = "MSACCEL_CLUSTER_TOKEN"  # in the environment of a job's processes; on several servers the user sets it
MAKE_TOKEN = "python -c 'import secrets; print(secrets.token_hex(32))'"
SHORTEST = 16  # characters: a shorter token could be guessed from an exchange that somebody has overheard
SECONDS = 20.0
MOST = 100  # connections at a time without a proof; beyond that the oldest is closed
_BYTES = 32  # of a random number and of a digest


def token_trouble() -> str:
    """Why the user's token cannot be used, with what to do, in a sentence; empty if it can."""
    found = os.environ.get(VARIABLE, "")
    if len(found) >= SHORTEST:
        return ""
    how = "is not set" if not found else f"has {len(found)} characters, fewer than {SHORTEST}"
    return (
        f"device.server_rank needs a secret that all servers of the job share, and {VARIABLE} {how}; make one with "
        f"{MAKE_TOKEN} and export it on every server."
    )


@dataclass
class _Candidate:
    connection: socket.socket
    number: bytes = field(default_factory=lambda: secrets.token_bytes(_BYTES))
    until: float = field(default_factory=lambda: time.monotonic() + SECONDS)
    said: bytes = b""


class TokenListener:
    """The listening side: admits connections that prove to know the token."""

    def __init__(self, listener: socket.socket, token: str) -> None:
        self.listener, self._token = listener, token
        self.listener.setblocking(False)
        self._candidates: list[_Candidate] = []

    def poll(self) -> list[socket.socket]:
        """The connections that have proven it since the last call; returns at once."""
        with suppress(BlockingIOError, ConnectionError):
            for _ in range(MOST):
                candidate = _Candidate(self.listener.accept()[0])
                self._candidates.append(candidate)
                candidate.connection.setblocking(False)
                candidate.connection.send(candidate.number)
        for candidate in self._candidates[:-MOST]:
            self._drop(candidate)
        return [candidate.connection for candidate in list(self._candidates) if self._has_proven(candidate)]

    def _has_proven(self, candidate: _Candidate) -> bool:
        """Whether the candidate has just proven that it knows the token; drops it once it no longer can."""
        try:
            arrived = candidate.connection.recv(2 * _BYTES - len(candidate.said))
        except BlockingIOError:
            arrived = None
        except OSError:
            arrived = b""
        candidate.said += arrived or b""
        if len(candidate.said) == 2 * _BYTES:
            number, proof = candidate.said[:_BYTES], candidate.said[_BYTES:]
            if hmac.compare_digest(proof, _digest(self._token, b"connects", candidate.number, number)):
                with suppress(OSError):
                    candidate.connection.send(_digest(self._token, b"listens", number, candidate.number))
                    self._candidates.remove(candidate)
                    candidate.connection.setblocking(True)
                    return True
            arrived = b""
        if arrived == b"" or time.monotonic() > candidate.until:
            self._drop(candidate)
        return False

    def _drop(self, candidate: _Candidate) -> None:
        self._candidates.remove(candidate)
        candidate.connection.close()

    def close(self) -> None:
        """Closes the listener and the connections without a proof."""
        for candidate in list(self._candidates):
            self._drop(candidate)
        self.listener.close()


def prove(connection: socket.socket, token: str, seconds: float = SECONDS) -> None:
    """The side that connects: proves to know the token, and checks that the other end does.

    Raises:
        OSError: the other end does not, or was too slow.
    """
    connection.settimeout(seconds)
    theirs, own = _receive(connection), secrets.token_bytes(_BYTES)
    connection.sendall(own + _digest(token, b"connects", theirs, own))
    if not hmac.compare_digest(_receive(connection), _digest(token, b"listens", own, theirs)):
        raise ConnectionError("another program is there, or another job")
    connection.settimeout(None)


def _receive(connection: socket.socket) -> bytes:
    received = b""
    while len(received) < _BYTES:
        part = connection.recv(_BYTES - len(received))
        if not part:
            raise ConnectionError(f"it has closed the connection: {VARIABLE} may be another there")
        received += part
    return received


def _digest(token: str, role: bytes, first: bytes, second: bytes) -> bytes:
    return hmac.digest(token.encode(), role + first + second, "sha256")
