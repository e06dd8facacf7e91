"""Where the launchers of several servers meet: before a job starts, while it runs, and when it ends.

Each server's `run.py` starts and watches its own ranks. The one of server 0 listens at `device.master`; the others
connect, show their settings, and stay connected: what ends on one server ends on all, and a server that is gone is
noticed although nothing arrives from it any more. Messages are lines of JSON.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Mapping
from contextlib import suppress

from msaccel.errors import UserError
from msaccel.launch.peers import SILENCE, Message, Peer, Peers
from msaccel.schema import DeviceSettings

Settings = Mapping[str, str]
MOST_STRANGERS = 100  # connections that have not yet said who they are


def meet(device: DeviceSettings, settings: Settings) -> Peers:
    """Waits until all servers of the job are there, with the same settings.

    Raises:
        UserError: the port is taken, a server does not come in time, or was started otherwise.
    """
    if device.server_rank is None or device.master is None:
        return Peers()
    host, port = device.master.rsplit(":", 1)
    if device.server_rank == 0:
        return _receive(device, host, int(port), settings)
    return Peers([_join(device, host, int(port), settings)])


def _receive(device: DeviceSettings, host: str, port: int, settings: Settings) -> Peers:
    try:
        listener = socket.create_server((host, port))
    except OSError as error:
        reason = str(error.strerror).split(" (")[0]  # without the address, which Python adds
        raise UserError(
            f"device.master={device.master} cannot be listened on ({reason}); "
            "write an address of this server with a port that is free, as is the next one."
        ) from error
    with listener, _Door(listener, settings) as door:
        until = time.monotonic() + device.timeout_s
        while absent := sorted(set(range(1, device.servers)) - set(door.peers)):
            if time.monotonic() > until:
                door.refusal = f"server {absent[0]} of {device.servers} did not come to {device.master} in time."
                raise UserError(
                    f"server {', '.join(map(str, absent))} of {device.servers} did not come to {device.master} within "
                    f"device.timeout_s={device.timeout_s:g}; start the same command there with "
                    f"device.server_rank={absent[0]}."
                )
            door.look()
            time.sleep(0.02)
        peers = Peers(list(door.peers.values()))
        peers.tell(go=True)
        door.peers = {}
    return peers


class _Door:
    """Where servers come in. Whoever else connects, and says nothing or something else, is in nobody's way.

    Attributes:
        peers: the servers of this job that are here.
        refusal: why the job does not start.
    """

    def __init__(self, listener: socket.socket, settings: Settings) -> None:
        self.listener, self.settings = listener, settings
        self.listener.setblocking(False)
        self.peers: dict[int, Peer] = {}
        self.refusal = "server 0 was interrupted."
        self._strangers: list[Peer] = []

    def __enter__(self) -> _Door:
        return self

    def __exit__(self, *raised: object) -> None:
        refused = Peers([*self.peers.values()])
        refused.tell(refuse=self.refusal)
        refused.close()
        for stranger in self._strangers:
            stranger.connection.close()

    def look(self) -> None:
        """Lets in who has come, and forgets who has left.

        Raises:
            UserError: a server was started otherwise than this one.
        """
        with suppress(BlockingIOError, ConnectionError):
            while len(self._strangers) < MOST_STRANGERS:
                self._strangers.append(Peer(self.listener.accept()[0], server=-1))
        for server, peer in list(self.peers.items()):
            try:
                peer.hear(0)
            except OSError:
                del self.peers[server]
        for stranger in list(self._strangers):
            try:
                hello = stranger.first(0)
                if hello is None and time.monotonic() - stranger.heard < SILENCE:
                    continue
                self._strangers.remove(stranger)
                self._welcome(stranger, hello or {})
            except OSError:
                self._strangers = [other for other in self._strangers if other is not stranger]
                stranger.connection.close()

    def _welcome(self, peer: Peer, hello: Message) -> None:
        server, other = hello.get("server"), hello.get("settings")
        if not isinstance(server, int) or not isinstance(other, dict):
            raise ConnectionError("no server of a job")
        differing = sorted(key for key in {*self.settings, *other} if self.settings.get(key) != other.get(key))
        if differing:
            key = differing[0]
            self.refusal = (
                f"server {server} was started with {key}={other.get(key)} and server 0 with "
                f"{key}={self.settings.get(key)}; type the same overrides on every server."
            )
        elif server in self.peers or server == 0:
            self.refusal = f"two servers were started with device.server_rank={server}; give each its own."
        else:
            peer.server = server
            peer.say(wait=True)
            self.peers[server] = peer
            return
        self.peers[-1] = peer
        raise UserError(self.refusal)


def _join(device: DeviceSettings, host: str, port: int, settings: Settings) -> Peer:
    until = time.monotonic() + device.timeout_s
    trouble: object = "it says nothing"
    while time.monotonic() < until:
        try:
            connection = socket.create_connection((host, port), timeout=5)
        except OSError as error:
            trouble = error
            time.sleep(0.3)
            continue
        peer = Peer(connection, server=0)
        try:
            peer.say(server=device.server_rank, settings=dict(settings))
            answer = peer.first(until - time.monotonic())
            if answer and "wait" in answer:  # for other servers: it knows for how long
                answer = peer.first(device.timeout_s + SILENCE)
        except OSError as error:
            trouble = error
            answer = None
        if answer and "refuse" in answer:
            connection.close()
            raise UserError(str(answer["refuse"]))
        if answer and "go" in answer:
            return peer
        connection.close()
        time.sleep(0.3)
    raise UserError(
        f"server 0 does not answer at device.master={device.master} within device.timeout_s={device.timeout_s:g} "
        f"({trouble}); start it first, with device.server_rank=0."
    )
