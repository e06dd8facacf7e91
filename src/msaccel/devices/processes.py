"""The processes of one job on this machine: started together, watched, and ended together.

MindSpore's dynamic cluster is described to each rank by environment variables, which are those that `msrun` sets.
`msrun` itself is not used: it hides which process is which rank, ends the others without a chance to finish, lets a
second server of the same machine start a scheduler of its own, and was seen to wait for ever after a lost rank.

Processes end with their launcher even when that is killed: each waits for the end of its standard input, and a guard
(`python -m msaccel.devices.processes PID...`) ends those that cannot, since MindSpore holds Python's lock for as long
as it waits in a collective or for the cluster to form.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from msaccel.settings import Device

SECONDS_TO_END = 10.0  # for the first rank to log what it has


@dataclass(frozen=True)
class Address:
    """Where the scheduler listens."""

    host: str
    port: int


@dataclass(frozen=True)
class Process:
    """One process of the job.

    Attributes:
        label: `rank 3`, or `scheduler`.
        rank: its number; None for the scheduler.
        popen: the process.
        log: where its output goes; None: to this terminal.
    """

    label: str
    rank: int | None
    popen: subprocess.Popen[bytes]
    log: Path | None


@dataclass
class Processes:
    """The ranks of a job on this machine, and its scheduler if that is here."""

    all: list[Process] = field(default_factory=list)
    guard: subprocess.Popen[bytes] | None = None

    @property
    def ranks(self) -> list[Process]:
        return [process for process in self.all if process.rank is not None]

    def start(
        self, label: str, rank: int | None, command: Sequence[str], env: Mapping[str, str], log: Path | None
    ) -> None:
        output = None if log is None else log.open("wb")
        popen = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,  # closes when the launcher is gone, however it went
            stdout=output,
            stderr=output and subprocess.STDOUT,
            env=dict(env),
            start_new_session=True,  # Ctrl-C reaches the launcher alone, which passes it on once
        )
        if output:
            output.close()
        self.all.append(Process(label, rank, popen, log))

    def watched(self) -> None:
        """Starts the guard of all that have been started."""
        command = [sys.executable, "-m", __name__, *(str(process.popen.pid) for process in self.all)]
        self.guard = subprocess.Popen(command, stdin=subprocess.PIPE, start_new_session=True)

    def failed(self) -> list[Process]:
        """The processes that ended as they should not have."""
        return [process for process in self.all if process.popen.poll()]

    def running(self) -> list[Process]:
        """The ranks that have not ended."""
        return [process for process in self.ranks if process.popen.poll() is None]

    def interrupt(self) -> None:
        """Asks the first rank to end, while the others still answer it, and ends all."""
        first = next((process.popen for process in self.ranks if process.rank == 0), None)
        if first and first.poll() is None:
            first.send_signal(signal.SIGINT)
            with suppress(subprocess.TimeoutExpired):
                first.wait(SECONDS_TO_END)
        self.kill()

    def kill(self) -> None:
        """Ends what still runs; a rank inside a collective or a compilation hears nothing else."""
        for process in self.all:
            if process.popen.poll() is None:
                os.killpg(process.popen.pid, signal.SIGKILL)
            process.popen.wait()
            if process.popen.stdin:
                process.popen.stdin.close()
        if self.guard and self.guard.stdin:
            self.guard.kill()
            self.guard.wait()
            self.guard.stdin.close()
            self.guard = None


def end_with_launcher(groups: Sequence[int]) -> None:
    """Waits until the launcher is gone, and ends the process groups that are still there a while later."""
    os.read(0, 1)  # nothing is ever written
    until = time.monotonic() + SECONDS_TO_END
    while time.monotonic() < until:
        groups = [group for group in groups if _reaches(group, 0)]
        time.sleep(0.1)
    for group in groups:
        _reaches(group, signal.SIGKILL)


def _reaches(group: int, number: int) -> bool:
    try:
        os.killpg(group, number)
    except (ProcessLookupError, PermissionError):  # gone, or its number is another's by now
        return False
    return True


def free_port() -> int:
    """A TCP port of the loopback that is free now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def cluster_environment(device: Device, address: Address, rank: int) -> dict[str, str]:
    """What a rank of the dynamic cluster is told."""
    return {
        **_cluster(device, address),
        "MS_ROLE": "MS_WORKER",
        "MS_NODE_ID": str(rank),
        "RANK_ID": str(rank),
        "DEVICE_ID": str(rank % device.ranks_per_server),
    }


def scheduler_environment(device: Device, address: Address) -> dict[str, str]:
    return {**_cluster(device, address), "MS_ROLE": "MS_SCHED", "RANK_ID": "0"}


def _cluster(device: Device, address: Address) -> dict[str, str]:
    return {
        "MS_WORKER_NUM": str(device.ranks),
        "MS_SCHED_HOST": address.host,
        "MS_SCHED_PORT": str(address.port),
        "MS_TOPO_TIMEOUT": str(max(1, int(device.timeout_s))),
        "RANK_SIZE": str(device.ranks),
    }


def table_environment(table: Path, ranks: int, rank: int, device_id: int) -> dict[str, str]:
    """What a rank is told that finds the others by a rank table."""
    return {
        "RANK_TABLE_FILE": str(table),
        "RANK_ID": str(rank),
        "DEVICE_ID": str(device_id),
        "RANK_SIZE": str(ranks),
    }


def start_job(
    device: Device, command: Sequence[str], common: Mapping[str, str], logs: Path, address: Address | None
) -> Processes:
    """Starts the ranks of this machine.

    Args:
        device: the topology; with `server_rank` only that server's ranks are started, else all.
        command: of a rank.
        common: environment of all processes.
        logs: folder for the output of all ranks but the first.
        address: of the scheduler; None where there is no cluster, or a rank table takes its place.
    """
    processes = Processes()
    server, per_server = device.server_rank, device.ranks_per_server
    ranks = list(range(device.ranks) if server is None else range(server * per_server, (server + 1) * per_server))
    if device.simulated:
        ranks = [0]
    device_ids: dict[int, int] = {}
    try:
        if address and ranks[0] == 0:
            env = {**common, **scheduler_environment(device, address)}
            scheduler = [sys.executable, "-m", "msaccel.devices.scheduler"]
            processes.start("scheduler", None, scheduler, env, _log(logs, "scheduler"))
        if device.rank_table:
            from msaccel.devices import ranktable

            table = Path(device.rank_table).expanduser()
            device_ids = dict(ranktable.of_server(ranktable.read(table), server or 0))
            ranks = sorted(device_ids)
        for rank in ranks:
            own: dict[str, str] = {}
            if device.rank_table:
                own = table_environment(table.resolve(), device.ranks, rank, device_ids[rank])
            elif address:
                own = cluster_environment(device, address, rank)
            env = {**common, **own, "MSACCEL_RANK": str(rank)}
            processes.start(f"rank {rank}", rank, command, env, _log(logs, f"rank-{rank}") if rank else None)
        if len(processes.all) > 1:  # one alone waits for no other
            processes.watched()
    except BaseException:
        processes.kill()
        raise
    return processes


def _log(folder: Path, name: str) -> Path:
    folder.mkdir(exist_ok=True)
    return folder / f"{name}.log"


def last_lines(process: Process, most: int = 20) -> list[str]:
    """The end of a process's log, each line with its label in front."""
    if process.log is None or not process.log.exists():
        return []
    lines = process.log.read_text(errors="replace").splitlines()
    return [f"{process.label} | {line}" for line in lines[-most:]]


if __name__ == "__main__":
    end_with_launcher([int(text) for text in sys.argv[1:]])
