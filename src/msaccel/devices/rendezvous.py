"""Where the launchers of several servers meet: before a job starts, while it runs, and when it ends.

Each server's `run.py` starts and watches its own ranks. The one of server 0 listens at `device.master`; the others
connect, show their settings, and stay connected: what ends on one server ends on all, and a server that is gone is
noticed although nothing arrives from it any more. Messages are lines of JSON.
"""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from msaccel.errors import UserError
from msaccel.settings import Device

Settings = Mapping[str, str]
BEAT = 2.0  # seconds between signs of life
SILENCE = 20.0  # seconds after which a server counts as gone
_LONGEST = 1 << 20  # bytes of a message


class Peer:
    """The other end of a connection."""

    def __init__(self, connection: socket.socket, server: int) -> None:
        self.connection, self.server = connection, server
        self.heard = self.said = time.monotonic()
        self._buffer = b""

    def say(self, **message: Any) -> None:
        self.connection.settimeout(SILENCE)
        self.connection.sendall(json.dumps(message).encode() + b"\n")
        self.said = time.monotonic()

    def hear(self, seconds: float) -> list[dict[str, Any]]:
        """Messages that have arrived, waiting at most so long for the first.

        Raises:
            ConnectionError: the other end is closed, or says what is no message.
        """
        self.connection.settimeout(max(seconds, 0.001))
        try:
            arrived = self.connection.recv(65536)
        except (TimeoutError, BlockingIOError):
            return []
        self.heard = time.monotonic()
        *lines, self._buffer = (self._buffer + arrived).split(b"\n")
        if not arrived or len(self._buffer) > _LONGEST:
            raise ConnectionError("closed")
        try:
            return [message for message in map(json.loads, lines) if isinstance(message, dict)]
        except ValueError as error:
            raise ConnectionError("no message") from error

    def first(self, seconds: float) -> dict[str, Any]:
        """The next message, waiting at most so long."""
        until = time.monotonic() + seconds
        while not (messages := self.hear(until - time.monotonic())):
            if time.monotonic() > until:
                raise ConnectionError("silent")
        return messages[0]


@dataclass
class Link:
    """A server's connections to the others: server 0's to all, any other's to server 0; none if there are no others."""

    peers: list[Peer] = field(default_factory=list)

    def trouble(self) -> dict[str, str] | None:
        """How the job ended elsewhere, as `status` and `message`, or None while it goes on."""
        for peer in self.peers:
            try:
                if time.monotonic() - peer.said > BEAT:
                    peer.say(alive=True)
                for message in peer.hear(0):
                    if "status" in message:
                        return message
                if time.monotonic() - peer.heard > SILENCE:
                    raise ConnectionError("silent")
            except OSError:
                return {"status": "FAILED", "message": f"server {peer.server} is gone"}
        return None

    def tell(self, **ended: Any) -> None:
        """Says how the job ended here."""
        for peer in self.peers:
            with suppress(OSError):
                peer.say(**ended)

    def end(self, seconds: float) -> dict[str, str] | None:
        """What the other side says at the end, waiting at most so long."""
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            if self.peers and (ended := self.trouble()):
                return ended
            time.sleep(0.05)
        return None

    def close(self) -> None:
        for peer in self.peers:
            with suppress(OSError), peer.connection as connection:
                connection.shutdown(socket.SHUT_WR)
                connection.settimeout(2)
                while connection.recv(65536):  # closed with something unread, it would take back what was said last
                    pass


def meet(device: Device, settings: Settings) -> Link:
    """Waits until all servers of the job are there, with the same settings.

    Raises:
        UserError: the port is taken, a server does not come in time, or was started otherwise.
    """
    if device.server_rank is None or device.master is None:
        return Link()
    host, port = device.master.rsplit(":", 1)
    if device.server_rank == 0:
        return _receive(device, host, int(port), settings)
    return Link([_join(device, host, int(port), settings)])


def _receive(device: Device, host: str, port: int, settings: Settings) -> Link:
    try:
        listener = socket.create_server((host, port))
    except OSError as error:
        raise UserError(
            f"device.master={device.master} cannot be listened on ({error.strerror}); "
            "write an address of this server with a port that is free, as is the next one."
        ) from error
    peers: dict[int, Peer] = {}
    until = time.monotonic() + device.timeout_s
    with listener:
        while len(peers) < device.servers - 1:
            listener.settimeout(max(until - time.monotonic(), 0.001))
            try:
                connection = listener.accept()[0]
            except TimeoutError as error:
                absent = sorted(set(range(1, device.servers)) - set(peers))
                Link(list(peers.values())).tell(refuse=f"server {absent[0]} did not come")
                raise UserError(
                    f"server {', '.join(map(str, absent))} of {device.servers} did not come to {device.master} within "
                    f"device.timeout_s={device.timeout_s:g}; start the same command there with "
                    f"device.server_rank={absent[0]}."
                ) from error
            peer = Peer(connection, server=-1)
            with suppress(ConnectionError):  # whoever that was, it is no server of this job
                _welcome(peer, peers, settings)
    link = Link(list(peers.values()))
    link.tell(go=True)
    return link


def _welcome(peer: Peer, peers: dict[int, Peer], settings: Settings) -> None:
    """Takes a server in, or refuses the job for all of them."""
    hello = peer.first(SILENCE)
    server, other = hello.get("server"), hello.get("settings")
    if not isinstance(server, int) or not isinstance(other, dict):
        raise ConnectionError("no server of a job")
    peer.server = server
    differing = sorted(key for key in {*settings, *other} if settings.get(key) != other.get(key))
    refusal = ""
    if server in peers or server == 0:
        refusal = f"two servers were started with device.server_rank={server}; give each its own."
    elif differing:
        key = differing[0]
        refusal = (
            f"server {server} was started with {key}={other.get(key)} and server 0 with {key}={settings.get(key)}; "
            "type the same overrides on every server."
        )
    if refusal:
        Link([*peers.values(), peer]).tell(refuse=refusal)
        raise UserError(refusal)
    peers[server] = peer


def _join(device: Device, host: str, port: int, settings: Settings) -> Peer:
    until = time.monotonic() + device.timeout_s
    while True:
        try:
            peer = Peer(socket.create_connection((host, port), timeout=5), server=0)
            peer.say(server=device.server_rank, settings=dict(settings))
            answer = peer.first(until - time.monotonic())
        except OSError as error:
            if time.monotonic() < until:
                time.sleep(0.3)
                continue
            raise UserError(
                f"server 0 does not answer at device.master={device.master} within device.timeout_s="
                f"{device.timeout_s:g} ({error}); start it first, with device.server_rank=0."
            ) from error
        if "refuse" in answer:
            raise UserError(str(answer["refuse"]))
        return peer
