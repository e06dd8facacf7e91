"""Starts the ranks of this machine, each with its environment.

MindSpore's dynamic cluster is described to each rank by environment variables, which are those that `msrun` sets.
`msrun` itself is not used: it hides which process is which rank, ends the others without a chance to finish, lets a
second server on the same machine start its own scheduler, and sometimes waits forever after a rank is lost.
Where the dynamic cluster cannot be used, a rank table takes its place.
"""

from __future__ import annotations

import logging
import socket
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from msaccel.devices import ranktable, ranktable_file
from msaccel.distributed.handshake import VARIABLE
from msaccel.errors import ConfigError
from msaccel.files import expand_user
from msaccel.launch.processes import Processes
from msaccel.schema import DeviceSettings

_log = logging.getLogger(__name__)
Variables = dict[str, str]


def start(
    device: DeviceSettings, command: Sequence[str], common: Mapping[str, str], logs: Path, forked: Path | None = None
) -> Processes:
    """Starts the ranks of this machine, and the scheduler of their cluster if it belongs here.

    Args:
        device: the topology; with `server_rank` only that server's ranks are started, else all.
        command: of a rank.
        common: environment of all processes.
        logs: folder for the output of all ranks but the first.
        forked: the job's folder, to start the ranks as forks of one process, without imports, instead of by `command`.

    Raises:
        UserError: the rank table does not fit this topology.
    """
    scheduler, ranks = rank_environments(device)
    token = {name: value for name, value in common.items() if name == VARIABLE}  # different in each job
    of_server = {name: value for name, value in common.items() if name != VARIABLE}
    processes = Processes()
    try:
        if scheduler:
            module = [sys.executable, "-m", "msaccel.distributed.scheduler"]
            processes.start("scheduler", None, module, {**common, **scheduler}, _log_file(logs, "scheduler"))
        for rank, variables in ranks.items():
            own, log = {**variables, "MSACCEL_RANK": str(rank)}, _log_file(logs, f"rank-{rank}") if rank else None
            _log.debug("rank %d: environment %s", rank, variables)
            if forked:
                processes.fork(rank, forked, of_server, own | token, log)
                if processes.all[-1].popen.returncode is not None:  # the server could not import, and has said why
                    break
            else:
                processes.start(f"rank {rank}", rank, command, {**common, **own}, log)
        if device.ranks > 1 and not device.simulated:  # one alone waits for no other
            processes.start_watchdog()
    except BaseException:
        processes.kill()
        raise
    return processes


def rank_environments(device: DeviceSettings) -> tuple[Variables, dict[int, Variables]]:
    """The variables of the scheduler, empty if it is not on this machine; and those of each rank of this machine."""
    if device.simulated or device.ranks == 1:
        return {}, {0: {}}
    if device.rank_table:
        return {}, _by_table(device, expand_user(device.rank_table))
    server, per_server = device.server_rank, device.ranks_per_server
    ranks = range(device.ranks) if server is None else range(server * per_server, (server + 1) * per_server)
    host, port = device.master.rsplit(":", 1) if device.master else ("127.0.0.1", "")
    cluster = {
        "MS_WORKER_NUM": str(device.ranks),
        "MS_SCHED_HOST": host,
        "MS_SCHED_PORT": str(int(port) + 1 if port else free_port()),
        "MS_TOPO_TIMEOUT": str(max(1, int(device.timeout_s))),
        "RANK_SIZE": str(device.ranks),
        "MSACCEL_HOST": host,
    }
    scheduler = {**cluster, "MS_ROLE": "MS_SCHED", "RANK_ID": "0"} if ranks[0] == 0 else {}
    return scheduler, {
        rank: {
            **cluster,
            "MS_ROLE": "MS_WORKER",
            "MS_NODE_ID": str(rank),
            "RANK_ID": str(rank),
            "DEVICE_ID": str(rank % per_server),
        }
        for rank in ranks
    }


def _by_table(device: DeviceSettings, path: Path) -> dict[int, Variables]:
    table = ranktable_file.read(path)
    ranktable.check(table, device)
    host = _host(table, path)
    return {
        rank: {
            "RANK_TABLE_FILE": str(path.resolve()),
            "RANK_ID": str(rank),
            "DEVICE_ID": str(device_id),
            "RANK_SIZE": str(device.ranks),
            "MSACCEL_HOST": host,
        }
        for rank, device_id in ranktable.of_server(table, device.server_rank)
    }


def _host(table: ranktable.RankTable, path: Path) -> str:
    """Where the first rank listens.

    Raises:
        ConfigError: the table names no address of its server.
    """
    if len(table.servers) == 1:
        return "127.0.0.1"
    host = table.servers[0].server_id
    try:
        socket.getaddrinfo(host, 0, type=socket.SOCK_STREAM)
    except OSError as error:
        raise ConfigError(
            f"{path}: server_id {host} is no address that this machine knows; write the first server's, such as "
            "10.0.0.1, or add its name to /etc/hosts on every server."
        ) from error
    return host


def free_port() -> int:
    """A TCP port of the loopback that is free now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _log_file(folder: Path, name: str) -> Path:
    folder.mkdir(exist_ok=True)
    return folder / f"{name}.log"
