"""Connects the launchers of a job's servers before it starts, and compares their settings.

Each server's `run.py` starts and watches its own ranks. The one of server 0 listens at `device.master`; the others
connect, prove that they know the token of the servers (`msaccel.distributed.handshake`), send their settings, and stay
connected, so that a job that ends on one server ends on all.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Mapping

from msaccel.distributed.handshake import SECONDS, TokenListener, prove
from msaccel.errors import UserError
from msaccel.launch.peers import SILENCE, Message, Peer, Peers
from msaccel.schema import DeviceSettings

Settings = Mapping[str, str]


def connect(device: DeviceSettings, settings: Settings, token: str) -> Peers:
    """Waits until all servers of the job are there, with the same settings.

    Args:
        token: a secret that only the servers of the job know.

    Raises:
        UserError: the port is taken, a server does not come in time, or was started with other settings.
    """
    if device.server_rank is None or device.master is None:
        return Peers()
    host, port = device.master.rsplit(":", 1)
    if device.server_rank == 0:
        return _listen(device, host, int(port), settings, token)
    return Peers([_connect(device, host, int(port), settings, token)])


def _listen(device: DeviceSettings, host: str, port: int, settings: Settings, token: str) -> Peers:
    try:
        listener = socket.create_server((host, port))
    except OSError as error:
        reason = str(error.strerror).split(" (")[0]  # without the address, which Python adds
        raise UserError(
            f"server 0 cannot listen on device.master={device.master} ({reason}); "
            "write an address of this server with a port that is free, as is the next one."
        ) from error
    with _Acceptor(TokenListener(listener, token), settings) as acceptor:
        until = time.monotonic() + device.timeout_s
        while absent := sorted(set(range(1, device.servers)) - set(acceptor.peers)):
            if time.monotonic() > until:
                acceptor.refusal = f"server {absent[0]} of {device.servers} did not come to {device.master} in time."
                raise UserError(
                    f"server {', '.join(map(str, absent))} of {device.servers} did not come to {device.master} within "
                    f"device.timeout_s={device.timeout_s:g}; start the same command there with "
                    f"device.server_rank={absent[0]}."
                )
            acceptor.poll()
            time.sleep(0.02)
        peers = Peers(list(acceptor.peers.values()))
        peers.broadcast(go=True)
        acceptor.peers = {}
    return peers


class _Acceptor:
    """Accepts the other servers of the job.

    Attributes:
        peers: the servers that are connected.
        refusal: why the job does not start, for the servers that are connected.
    """

    def __init__(self, listener: TokenListener, settings: Settings) -> None:
        self.listener, self.settings = listener, settings
        self.peers: dict[int, Peer] = {}
        self.refusal = "server 0 was interrupted."
        self._unidentified: list[Peer] = []

    def __enter__(self) -> _Acceptor:
        return self

    def __exit__(self, *raised: object) -> None:
        refused = Peers([*self.peers.values()])
        refused.broadcast(refuse=self.refusal)
        refused.close()
        for connected in self._unidentified:
            connected.connection.close()
        self.listener.close()

    def poll(self) -> None:
        """Admits servers that have connected, and forgets those that have left.

        Raises:
            UserError: a server was started with other settings than this one.
        """
        self._unidentified += [Peer(connection, server=-1) for connection in self.listener.poll()]
        for server, peer in list(self.peers.items()):
            try:
                peer.receive(0)
            except OSError:
                del self.peers[server]
        for connected in list(self._unidentified):
            try:
                message = connected.receive_one(0)
                if message is None and time.monotonic() - connected.received < SILENCE:
                    continue
                self._unidentified.remove(connected)
                self._admit(connected, message or {})
            except OSError:
                self._unidentified = [other for other in self._unidentified if other is not connected]
                connected.connection.close()

    def _admit(self, peer: Peer, message: Message) -> None:
        server, other = message.get("server"), message.get("settings")
        if not isinstance(server, int) or not isinstance(other, dict):
            raise ConnectionError("not a server of a job")
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
            peer.send(wait=True)
            self.peers[server] = peer
            return
        self.peers[-1] = peer
        raise UserError(self.refusal)


def _connect(device: DeviceSettings, host: str, port: int, settings: Settings, token: str) -> Peer:
    until = time.monotonic() + device.timeout_s
    problem: object = "no answer"
    while time.monotonic() < until:
        try:
            connection = socket.create_connection((host, port), timeout=5)
        except OSError as error:
            problem = error
            time.sleep(0.3)
            continue
        peer = Peer(connection, server=0)
        try:
            prove(connection, token, min(SECONDS, device.timeout_s))
            peer.send(server=device.server_rank, settings=dict(settings))
            answer = peer.receive_one(until - time.monotonic())
            if answer and "wait" in answer:  # for other servers: it knows for how long
                answer = peer.receive_one(device.timeout_s + SILENCE)
        except OSError as error:
            problem = error
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
        f"({problem}); start it first, with device.server_rank=0."
    )
