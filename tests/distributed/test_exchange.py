"""Vectors that two ranks hand each other, here two threads."""

import socket
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from msaccel.distributed import exchange
from msaccel.distributed.exchange import swap
from msaccel.errors import TrainingError


@pytest.fixture
def ends() -> Iterator[tuple[socket.socket, socket.socket]]:
    pair = socket.socketpair()
    for end in pair:
        end.setblocking(False)
    yield pair
    for end in pair:
        end.close()


def view(values: np.ndarray) -> memoryview:
    return memoryview(values).cast("B")


@given(size=st.sampled_from([1, 3, 1000, 1_000_000]), times=st.integers(1, 3))
def test_both_have_what_the_other_sent(size: int, times: int) -> None:
    """More than a socket's buffers hold, and one vector after another without waiting in between."""
    sent = np.random.default_rng(size).standard_normal((2, times, size)).astype(np.float32)
    found = np.zeros_like(sent)
    near, far = socket.socketpair()

    def exchange_all(end: socket.socket, rank: int) -> None:
        end.setblocking(False)
        for own, theirs in zip(sent[rank], found[rank], strict=True):
            swap(end, view(own), view(theirs))

    with near, far, ThreadPoolExecutor() as pool:
        for done in [pool.submit(exchange_all, end, rank) for rank, end in enumerate((near, far))]:
            done.result(60)
    np.testing.assert_array_equal(found, sent[::-1])


def test_a_partner_that_is_gone(ends: tuple[socket.socket, socket.socket]) -> None:
    near, far = ends
    far.send(b"1234")
    far.close()
    with pytest.raises(TrainingError, match="another rank of the job is gone"):
        swap(near, view(np.ones(1000, np.float32)), view(np.empty(1000, np.float32)))


def test_a_partner_that_stands_still(
    ends: tuple[socket.socket, socket.socket], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(exchange, "_SECONDS", 0.2)
    with pytest.raises(TrainingError, match="another rank of the job is gone"):
        swap(ends[0], view(np.ones(1000, np.float32)), view(np.empty(1000, np.float32)))
