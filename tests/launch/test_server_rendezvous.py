"""Where servers meet: with threads in the place of launchers."""

import json
import socket
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import replace

import pytest

from msaccel.distributed import handshake
from msaccel.errors import UserError
from msaccel.launch import peers
from msaccel.launch.peers import MAX_BYTES, Peer, Peers
from msaccel.launch.rank_env import free_port
from msaccel.launch.server_rendezvous import connect
from msaccel.schema import Config, DeviceSettings

SETTINGS = {"train.batch_size": "32"}
TOKEN = "of these servers"
Start = Callable[..., "Future[Peers]"]


@pytest.fixture
def device(composed: Callable[..., Config]) -> DeviceSettings:
    found = composed("device=cpu2x2").device
    return replace(found, server_rank=0, master=f"127.0.0.1:{free_port()}", timeout_s=5.0)


@pytest.fixture
def start(device: DeviceSettings) -> Iterator[Start]:
    """Starts a server's side of a meeting in a thread; `keys` change its topology."""
    with ExitStack() as stack, ThreadPoolExecutor() as pool:

        def started(
            server: int, settings: dict[str, str] = SETTINGS, token: str = TOKEN, **keys: object
        ) -> "Future[Peers]":
            future = pool.submit(connect, replace(device, server_rank=server, **keys), settings, token)
            future.add_done_callback(lambda done: done.exception() or stack.callback(close, done.result()))
            return future

        yield started


def close(link: Peers) -> None:
    for peer in link.peers:
        peer.connection.close()


def visit(device: DeviceSettings, said: bytes) -> socket.socket:
    """A stranger at the port of server 0, once that listens."""
    host, port = str(device.master).split(":")
    end = time.monotonic() + 5
    while True:
        try:
            stranger = socket.create_connection((host, int(port)))
        except ConnectionRefusedError:
            assert time.monotonic() < end
            time.sleep(0.02)
        else:
            stranger.sendall(said)
            return stranger


def pair() -> tuple[Peer, Peer]:
    """Two ends of one connection: server 1 as server 0 sees it, and the other way round."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        far = socket.create_connection(listener.getsockname())
        return Peer(listener.accept()[0], 1), Peer(far, 0)


def said(link: Peers, seconds: float = 5) -> peers.JobOutcome | None:
    """The trouble that a link reports, once it does."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if found := link.poll():
            return found
    return None


# meeting


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 1, 0), (1, 0, 2)])
def test_servers_meet_in_any_order(start: Start, order: tuple[int, ...]) -> None:
    coming = {}
    for server in order:
        coming[server] = start(server, servers=3)
        time.sleep(0.1)
    links = {server: future.result(10) for server, future in coming.items()}
    assert sorted(peer.server for peer in links[0].peers) == [1, 2]
    assert [[peer.server for peer in links[server].peers] for server in (1, 2)] == [[0], [0]]
    assert [link.poll() for link in links.values()] == [None] * 3
    links[2].broadcast(status="FAILED", message="rank 5 was ended by SIGKILL")
    assert said(links[0]) == ("FAILED", "rank 5 was ended by SIGKILL")


def test_one_server_needs_no_meeting(device: DeviceSettings) -> None:
    link = connect(replace(device, server_rank=None, master=None), SETTINGS, TOKEN)
    assert link.poll() is None and not link.peers
    link.close()


STRANGERS = [
    b"",
    b"GET / HTTP/1.1\r\n\r\n",
    b"\xff\xfe\n",
    b"[" * 100_000 + b"\n",
    b"{}\n",
    b'{"server": "1"}\n',
    b'{"se',
]


def test_strangers_are_in_nobodys_way(device: DeviceSettings, start: Start) -> None:
    first = start(0)
    strangers = [visit(device, content) for content in STRANGERS]
    begun = time.monotonic()
    second = start(1)
    assert [len(future.result(5).peers) for future in (first, second)] == [1, 1]
    assert time.monotonic() - begun < 2
    for stranger in strangers:
        stranger.close()


def test_a_stranger_that_never_stops_is_dropped(device: DeviceSettings, start: Start) -> None:
    first = start(0)
    with visit(device, b""), visit(device, b"") as stranger, pytest.raises(OSError):
        for _ in range(100):
            stranger.sendall(b"x" * (MAX_BYTES // 10))
            time.sleep(0.01)
    start(1).result(5)
    first.result(5)


def test_a_silent_stranger_is_dropped(device: DeviceSettings, start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(handshake, "SECONDS", 0.2)
    first = start(0)
    with visit(device, b"") as stranger:
        stranger.settimeout(5)
        assert len(stranger.makefile("rb").read()) == 32, "a random number, and the end"
    start(1).result(5)
    first.result(5)


@pytest.mark.parametrize("token", ["", "of other servers"])
def test_a_server_with_another_token_is_a_stranger(device: DeviceSettings, start: Start, token: str) -> None:
    first, other = start(0), start(1, token=token, timeout_s=0.5)
    (said,) = refusals(other)
    assert said == (
        f"server 0 does not answer at device.master={device.master} within device.timeout_s=0.5 (it has closed the "
        "connection: MSACCEL_CLUSTER_TOKEN may be another there); start it first, with device.server_rank=0."
    )
    start(1).result(5)
    first.result(5)


def test_a_server_that_left_may_come_again(device: DeviceSettings, start: Start) -> None:
    first = start(0, servers=3)
    with visit(device, b"") as once:
        handshake.prove(once, TOKEN)
        once.sendall(json.dumps({"server": 1, "settings": SETTINGS}).encode() + b"\n")
    time.sleep(0.3)
    others = [start(server, servers=3) for server in (1, 2)]
    assert all(future.result(5).poll() is None for future in (first, *others))


# refusals


def refusals(*futures: "Future[Peers]") -> list[str]:
    found = [future.exception(10) for future in futures]
    assert all(isinstance(error, UserError) for error in found)
    return [str(error) for error in found]


def test_other_settings_are_refused_on_both(start: Start) -> None:
    here, there = refusals(start(0), start(1, {"train.batch_size": "64"}))
    assert here == there
    assert here == (
        "server 1 was started with train.batch_size=64 and server 0 with train.batch_size=32; "
        "type the same overrides on every server."
    )


def test_a_key_that_only_one_server_has_is_refused(start: Start) -> None:
    here, there = refusals(start(0), start(1, {**SETTINGS, "accel.clip.max_norm": "1.0"}))
    assert here == there and "accel.clip.max_norm=1.0 and server 0 with accel.clip.max_norm=None" in here


def test_the_same_number_twice_is_refused_on_all(start: Start) -> None:
    found = refusals(*(start(server, servers=3) for server in (0, 1, 1)))
    assert set(found) == {"two servers were started with device.server_rank=1; give each its own."}


def test_two_times_server_0_is_a_port_that_is_taken(start: Start) -> None:
    first = start(0, timeout_s=0.5)
    time.sleep(0.1)
    (second,) = refusals(start(0))
    assert "(Address already in use); write an address of this server with a port" in second
    refusals(first)


def test_a_server_that_never_comes(device: DeviceSettings, start: Start) -> None:
    begun = time.monotonic()
    here, there = refusals(start(0, servers=3, timeout_s=1.0), start(1, servers=3))
    assert 0.9 < time.monotonic() - begun < 4
    assert here == (
        f"server 2 of 3 did not come to {device.master} within device.timeout_s=1; "
        "start the same command there with device.server_rank=2."
    )
    assert there == f"server 2 of 3 did not come to {device.master} in time."


def test_server_0_never_comes(device: DeviceSettings, start: Start) -> None:
    begun = time.monotonic()
    (found,) = refusals(start(1, timeout_s=1.0))
    assert 0.9 < time.monotonic() - begun < 3
    assert found.startswith(f"server 0 does not answer at device.master={device.master} within device.timeout_s=1 (")


@pytest.mark.parametrize("answer", [b"", b"HTTP/1.1 400 Bad Request\r\n\r\n", b'{"other": 1}\n'])
def test_another_program_is_not_server_0(device: DeviceSettings, start: Start, answer: bytes) -> None:
    with socket.create_server(("127.0.0.1", int(str(device.master).split(":")[1]))) as other:
        future = start(1, timeout_s=1.0)
        connection = other.accept()[0]
        connection.sendall(answer)
        (found,) = refusals(future)
        connection.close()
    assert found.startswith("server 0 does not answer")


# a job that runs


def test_a_server_is_gone_when_its_launcher_is() -> None:
    near, far = pair()
    link = Peers([near])
    assert link.poll() is None
    far.connection.close()
    assert said(link) == ("FAILED", "server 1 is gone.")


def test_signs_of_life_are_told_from_silence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(peers, "BEAT", 0.05)
    monkeypatch.setattr(peers, "SILENCE", 0.5)
    near, far = pair()
    link = Peers([near])
    end = time.monotonic() + 1.5
    while time.monotonic() < end:
        far.send(alive=True)
        assert link.poll() is None
    assert said(link) == ("FAILED", "server 1 is gone.")  # the other says nothing any more
    for peer in (near, far):
        peer.connection.close()


def test_a_server_that_is_busy_is_not_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Starting ranks can take longer than SILENCE, and meanwhile no launcher polls."""
    monkeypatch.setattr(peers, "BEAT", 0.05)
    monkeypatch.setattr(peers, "SILENCE", 0.5)
    links = [Peers([peer]) for peer in pair()]
    time.sleep(1)
    for _ in range(100):
        assert [link.poll() for link in links] == [None, None]
    for link in links:
        close(link)


def test_a_server_that_came_long_before_the_last_one_is_not_gone() -> None:
    near, far = pair()
    near.received -= 2 * peers.SILENCE  # it had nothing to say until all had met
    link = Peers([near])
    assert link.poll() is None
    close(link)
    far.connection.close()


def test_the_last_message_arrives_before_the_end() -> None:
    near, far = (Peers([peer]) for peer in pair())
    near.peers[0].send(alive=True)  # which the other never reads
    far.broadcast(status="KILLED", message="server 1 was interrupted")
    with ThreadPoolExecutor() as pool:
        closing = pool.submit(far.close)
        time.sleep(0.3)
        assert near.wait() == ("KILLED", "server 1 was interrupted")
        near.close()
        closing.result(5)


def test_what_follows_in_the_same_packet_is_kept() -> None:
    near, far = pair()
    far.connection.sendall(b'{"go": true}\n{"status": "FAILED", "message": "so"}\n')
    assert near.receive_one(5) == {"go": True}
    assert said(Peers([near])) == ("FAILED", "so")
    for peer in (near, far):
        peer.connection.close()


def test_a_message_in_two_halves() -> None:
    near, far = pair()
    far.connection.sendall(b'{"status": "FAIL')
    link = Peers([near])
    assert said(link, 0.2) is None
    far.connection.sendall(b'ED"}\n')
    assert said(link) == ("FAILED", "")
    for peer in (near, far):
        peer.connection.close()


def test_nothing_arrives_for_a_while() -> None:
    near, far = pair()
    begun = time.monotonic()
    assert near.receive_one(0.2) is None
    assert 0.1 < time.monotonic() - begun < 1
    for peer in (near, far):
        peer.connection.close()
