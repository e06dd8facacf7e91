"""The commands that start one job on several servers, to type on each, or ready for ssh or Slurm.

Every server runs the same `run.py`, with its own `device.server_rank` and the same `device.master`. The master listens
on its port and the next one. `run.py` starts the ranks of its server.
"""

from __future__ import annotations

import argparse
import re
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path

from msaccel.config.compose import from_overrides
from msaccel.config.messages import without_passwords
from msaccel.distributed.handshake import MAKE_TOKEN, VARIABLE
from msaccel.errors import CombinationError, ConfigError, on_one_line
from msaccel.files import ROOT
from msaccel.schema import DeviceSettings
from msaccel.tracking.credentials import has_password


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("overrides", nargs="+", metavar="KEY=VALUE", help="of run.py: device=ascend16 accel=adasum …")
    parser.add_argument("--hosts", default="", metavar="A,B", help="one for each server; the first is the master")
    parser.add_argument("--port", type=int, default=8118, help="of the master, which uses the next one too")
    parser.add_argument(
        "--style",
        choices=("type", "ssh", "srun"),
        default="type",
        help="commands to type on each server, to type here, or one command for Slurm",
    )


def run(options: argparse.Namespace) -> int:
    hosts = options.hosts.split(",") if options.hosts else []
    print("\n".join(plan(options.overrides, hosts, options.port, options.style)))
    return 0


def plan(overrides: Sequence[str], hosts: Sequence[str], port: int, style: str, folder: Path = ROOT) -> list[str]:
    """Lines for a shell: comments, and the commands that start the job.

    Args:
        overrides: as for `run.py`, without `device.server_rank` and `device.master`.
        hosts: one for each server; the first is the master. May be empty if there is one server.
        port: of the master.
        style: `type` for commands to type on each server, `ssh` for commands to type here, `srun` for one command
            in a Slurm allocation.
        folder: the repository's, the same on all servers.

    Raises:
        ConfigError: an override, a host or the port is not valid.
        CombinationError: hosts and topology do not fit, or an override sets what the plan sets.
    """
    device = from_overrides(overrides).device
    if any(map(has_password, overrides)):
        raise ConfigError(
            "tracking.uri holds a password, which the commands would show; leave it out of the address, and set "
            "MLFLOW_TRACKING_USERNAME and MLFLOW_TRACKING_PASSWORD on each server."
        )
    for key in ("server_rank", "master"):
        if getattr(device, key) is not None:
            raise CombinationError(f"device.{key} is what the plan finds for each server; leave it out.")
    command = ["python", "run.py", *overrides]
    virtual = device.simulate == "always"
    if device.servers == 1 or virtual:
        if len(hosts) > 1:
            reason = "is simulated in one process" if virtual else "has one server"
            raise CombinationError(
                f"--hosts names {len(hosts)} servers and device={device.name} {reason}; leave --hosts out."
            )
        return [f"# device={device.name} is started on one server, by one command:", shlex.join(command)]
    _check(hosts, port, device, style)
    master = f"device.master={hosts[0]}:{port}"
    lines = [
        f"# {device.servers} servers of {device.ranks_per_server} ranks each, which meet at {hosts[0]}: "
        f"its ports {port} and {port + 1} must be free there and reachable from all servers.",
        f"# All need the same secret of yours in {VARIABLE}; make one: {MAKE_TOKEN}",
    ]
    cd = f"cd {shlex.quote(str(folder))} && "
    if style == "srun":
        srun = f"srun --nodes={len(hosts)} --ntasks-per-node=1 --nodelist={','.join(hosts)} sh -c"
        on_each = f"{cd}{shlex.join(command)} device.server_rank=$SLURM_NODEID {master}"
        return [
            *lines,
            f"# Slurm numbers the nodes in an order of its own; {hosts[0]} must be its node 0, as this shows:",
            f"# {srun} 'echo $SLURM_NODEID $SLURMD_NODENAME'",
            f"{srun} {shlex.quote(on_each)}",
        ]
    if style == "ssh":
        lines.append("# Each ends with the job, so type each in a terminal of its own, within device.timeout_s.")
        python = Path(sys.executable)  # the shell of ssh does not have this environment's PATH
        command[0] = str(python.relative_to(ROOT)) if python.is_relative_to(ROOT) else "python"
    for rank, host in enumerate(hosts):
        line = shlex.join([*command, f"device.server_rank={rank}", master])
        if style == "ssh":
            lines.append(f"ssh -t {host} {shlex.quote(cd + line)}")  # -t passes an interrupt on
        else:
            lines += [f"# on {host}, in the folder of msaccel:", line]
    return lines


def _check(hosts: Sequence[str], port: int, device: DeviceSettings, style: str) -> None:
    for host in hosts:
        if not re.fullmatch(r"[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?", host):
            raise ConfigError(
                f"--hosts names '{on_one_line(without_passwords(host))}', which is no host; write names or IPv4 "
                "addresses, separated by commas."
            )
    if len(hosts) != device.servers:
        example = ",".join("abcd"[: device.servers])
        raise CombinationError(
            f"--hosts names {len(hosts)} of the {device.servers} servers of device={device.name}; write one host for "
            f"each, such as --hosts {example}{',…' if device.servers > 4 else ''}."
        )
    # Servers of CPU ranks may be one machine, which Slurm would not list twice.
    if len(set(hosts)) < len(hosts) and (device.target != "CPU" or style == "srun"):
        raise CombinationError("--hosts names a host twice; write another one for each server.")
    if not 1 <= port <= 65534:
        raise ConfigError(f"--port={port} is out of range; write one from 1 to 65534, since the next is used too.")
