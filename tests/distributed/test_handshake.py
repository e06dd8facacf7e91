"""Only connections that know the token are admitted; others are dropped without a word and delay nobody."""

import os
import socket
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing

import pytest

from msaccel.distributed import barrier, handshake
from msaccel.distributed.barrier import Barrier
from msaccel.distributed.handshake import TokenListener, prove, token_trouble
from msaccel.errors import TrainingError

TOKEN = "known to both sides"


@pytest.fixture
def listener() -> Iterator[TokenListener]:
    with closing(TokenListener(socket.create_server(("127.0.0.1", 0)), TOKEN)) as opened:
        yield opened


def visit(listener: TokenListener, said: bytes = b"") -> socket.socket:
    stranger = socket.create_connection(listener.listener.getsockname(), timeout=5)
    stranger.sendall(said)
    return stranger


def admitted(listener: TokenListener, count: int, seconds: float = 60) -> list[socket.socket]:
    found, until = listener.poll(), time.monotonic() + seconds
    while len(found) < count and time.monotonic() < until:
        found += listener.poll()
    return found


def is_closed(stranger: socket.socket) -> bool:
    """Whether the other end has closed it, having sent nothing but its random number."""
    received = b""
    try:
        while part := stranger.recv(1000):
            received += part
    except ConnectionResetError:
        pass
    return len(received) <= 32


def is_dropped(listener: TokenListener, said: bytes) -> bool:
    """Whether a stranger who says this is not admitted, and its connection is closed."""

    def visited() -> bool:
        try:
            with visit(listener, said) as stranger:
                return is_closed(stranger)
        except ConnectionError:  # before it has said it all
            return True

    with ThreadPoolExecutor() as pool:
        dropped = pool.submit(visited)
        while not dropped.done():
            assert listener.poll() == []
    return dropped.result()


def knocks(listener: TokenListener, token: str) -> Exception | None:
    with socket.create_connection(listener.listener.getsockname()) as connection:
        try:
            prove(connection, token, seconds=60)
        except OSError as error:
            return error
        connection.sendall(b"hello")
        return None


STRANGERS = {
    "silent": b"",
    "too short": b"x" * 63,
    "garbage": os.urandom(64),
    "huge": os.urandom(1 << 20),
    "http": b"GET / HTTP/1.1\r\nHost: localhost\r\nUser-Agent: a browser of some kind\r\n\r\n",
}


def test_strangers_of_every_kind_are_in_nobodys_way(listener: TokenListener) -> None:
    visit(listener).close()
    with ThreadPoolExecutor() as pool:
        strangers = [pool.submit(visit, listener, said) for said in STRANGERS.values()]
        wrong, right = pool.submit(knocks, listener, "another token"), pool.submit(knocks, listener, TOKEN)
        (connection,) = admitted(listener, 1)
        assert connection.recv(5) == b"hello" and right.result(60) is None
        while not all(future.done() for future in (wrong, *strangers)):
            assert listener.poll() == []
        assert isinstance(wrong.result(), ConnectionError)
        connection.close()


@pytest.mark.parametrize("said", [STRANGERS["garbage"], STRANGERS["huge"], STRANGERS["http"]], ids=len)
def test_what_is_no_proof_closes_the_connection(listener: TokenListener, said: bytes) -> None:
    assert is_dropped(listener, said)


def test_a_silent_connection_has_its_time(listener: TokenListener, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(handshake, "SECONDS", 0.1)
    assert is_dropped(listener, b"slowly")


def test_of_too_many_the_oldest_is_closed(listener: TokenListener, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(handshake, "MOST", 3)
    strangers = [visit(listener) for _ in range(7)]
    for _ in range(7):
        assert listener.poll() == []
    assert len(listener._candidates) == 3
    assert is_closed(strangers[0]) and is_closed(strangers[3])
    with ThreadPoolExecutor() as pool:
        right = pool.submit(knocks, listener, TOKEN)
        (connection,) = admitted(listener, 1)
        assert right.result(60) is None
        connection.close()
    for stranger in strangers:
        stranger.close()


def test_a_proof_cannot_be_used_again_or_sent_back(listener: TokenListener) -> None:
    """What a listener who does not know the token receives is of no use elsewhere."""
    with socket.create_server(("127.0.0.1", 0)) as impostor, ThreadPoolExecutor() as pool:
        victim = socket.create_connection(impostor.getsockname())
        proving = pool.submit(prove, victim, TOKEN, 60)
        near = impostor.accept()[0]
        near.sendall(b"n" * 32)
        proof = near.recv(64)
        with visit(listener, proof) as stranger:
            assert not admitted(listener, 1, 0.5) and is_closed(stranger)
        near.sendall(proof[32:])
        assert isinstance(proving.exception(60), ConnectionError)
        for connection in (near, victim):
            connection.close()


def test_ranks_meet_among_strangers() -> None:
    listener = barrier.listen("127.0.0.1")
    host, port = listener.getsockname()
    strangers = [socket.create_connection((host, port)) for _ in range(3)]
    strangers[0].sendall(os.urandom(64))
    strangers[1].close()
    with ThreadPoolExecutor() as pool:
        others = [pool.submit(barrier.connect, host, port, TOKEN) for _ in range(2)]
        first = Barrier(barrier.accept(listener, 2, TOKEN), first=True)
        ranks = [first, *(Barrier([other.result(60)], first=False) for other in others)]
        waits = [pool.submit(rank.wait) for rank in ranks]
        assert [wait.result(60) for wait in waits] == [None] * 3
    for rank in ranks:
        for connection in rank.connections:
            connection.close()
    for stranger in strangers:
        stranger.close()


def test_a_first_rank_that_is_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(barrier, "_SECONDS_TO_CONNECT", 0.2)
    listener = barrier.listen("127.0.0.1")
    host, port = listener.getsockname()
    listener.close()
    with pytest.raises(TrainingError, match="is gone"):
        barrier.connect(host, port, TOKEN)


@pytest.mark.parametrize(("token", "how"), [("", "is not set"), ("short", "has 5 characters, fewer than 16")])
def test_the_sentence_says_how_to_make_a_token(token: str, how: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(handshake.VARIABLE, token)
    assert token_trouble() == (
        "device.server_rank needs a secret that all servers of the job share, and MSACCEL_CLUSTER_TOKEN "
        f"{how}; make one with python -c 'import secrets; print(secrets.token_hex(32))' and export it on every server."
    )
    monkeypatch.setenv(handshake.VARIABLE, TOKEN)
    assert token_trouble() == ""
