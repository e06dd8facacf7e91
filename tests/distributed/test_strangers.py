"""Strangers that connect to every port of a job of two real ranks change nothing: it ends, with the same result."""

import os
import socket
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

from msaccel.distributed.handshake import VARIABLE
from tests.launch.test_rank_endings import two_ports
from tests.running import SMALL, Store

pytestmark = pytest.mark.slow

TWO_RANKS = (*SMALL, "model=mlp", "device=cpu4", "device.ranks_per_server=2")
KINDS = ("silent", "garbage", "closes", "huge")
MOST = 2 * len(KINDS)  # strangers at a port


def listening(launcher: psutil.Process, of_the_job: dict[str, bool]) -> list[tuple[str, int]]:
    """The addresses at which the processes of a job listen now.

    Whose a socket is, is asked once, when it is first seen: looking through the processes takes the job's own time.
    """
    found = sockets()
    if new := found.keys() - of_the_job.keys():
        held = {file for process in launcher.children(recursive=True) for file in open_files(process.pid)}
        of_the_job.update({inode: f"socket:[{inode}]" in held for inode in new})
    return [address for inode, address in found.items() if of_the_job[inode]]


def sockets() -> dict[str, tuple[str, int]]:
    """The addresses at which any process of this machine listens, by the inodes of the sockets."""
    found = {}
    for table in filter(Path.exists, (Path("/proc/net/tcp"), Path("/proc/net/tcp6"))):
        for line in table.read_text().splitlines()[1:]:
            _, local, _, state, *_, inode = line.split()[:10]
            if state == "0A":  # LISTEN
                host, port = local.split(":")
                words = [int(host[i : i + 8], 16).to_bytes(4, sys.byteorder) for i in range(0, len(host), 8)]
                family = socket.AF_INET if len(words) == 1 else socket.AF_INET6
                found[inode] = (socket.inet_ntop(family, b"".join(words)), int(port, 16))
    return found


def open_files(process: int) -> Iterator[str]:
    """What the file descriptors of a process lead to, such as `socket:[123]`."""
    with suppress(OSError):  # it ends meanwhile
        for descriptor in os.listdir(f"/proc/{process}/fd"):
            with suppress(FileNotFoundError):
                yield os.readlink(f"/proc/{process}/fd/{descriptor}")


def attack(address: tuple[str, int], kind: str) -> socket.socket | None:
    """One stranger; the connection, unless it has ended."""
    with suppress(OSError):
        stranger = socket.create_connection(address, timeout=2)
        if kind == "closes":
            stranger.close()
            return None
        stranger.sendall({"silent": b"", "garbage": os.urandom(64), "huge": b"\xff" * 1_000_000}[kind])
        return stranger
    return None


def test_a_job_under_attack_ends_with_the_same_result(store: Store) -> None:
    undisturbed = store.run(*TWO_RANKS)
    assert undisturbed.returncode == 0, undisturbed.stderr
    visits, held = dict[tuple[str, int], int](), []
    of_the_job = dict[str, bool]()
    job = store.start(*TWO_RANKS)
    try:
        while job.poll() is None:
            with suppress(psutil.Error):
                for address in listening(psutil.Process(job.pid), of_the_job):
                    assert address[0] == "127.0.0.1", "nothing listens beyond this machine"
                    visits[address] = visits.get(address, 0) + 1
                    if visits[address] <= MOST:
                        held.append(attack(address, KINDS[visits[address] % len(KINDS)]))
            time.sleep(0.02)  # the job needs the processor more than whoever looks for its ports
    finally:
        job.kill()
        for stranger in filter(None, held):
            stranger.close()
    assert (job.returncode, job.communicate()[1]) == (0, "")
    assert len(visits) >= 3, "the scheduler and two ranks"
    first, second = store.runs()
    assert store.history(second) == store.history(first)


def test_the_token_of_servers_is_demanded(store: Store) -> None:
    """That it is written nowhere, tests/distributed/test_real_ranks.py says of a job of two servers."""
    servers = (*SMALL, "device=cpu2x2", "device.server_rank=0", f"device.master=127.0.0.1:{two_ports()}")
    refused = store.run(*servers, **{VARIABLE: ""})
    assert refused.returncode == 2 and f"{VARIABLE} is not set; make one with" in refused.stderr
    assert len(refused.stderr.splitlines()) == 1
