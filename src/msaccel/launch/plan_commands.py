"""What to type on each server of a topology, so that one job runs on all of them.

Every server runs the same `run.py` with its own `device.server_rank` and the `device.master` of all. The master
listens on its port and on the next one. Ranks of one server are started by `run.py` itself.
"""

from __future__ import annotations

import re
import shlex
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

import hydra
from hydra import initialize_config_dir

from msaccel.config import compose
from msaccel.config.compose import readable
from msaccel.config.messages import HYDRA_ERRORS, sentence
from msaccel.config.ranges import bad_values
from msaccel.errors import CombinationError, ConfigError, on_one_line
from msaccel.files import CONF, ROOT
from msaccel.schema import Config, DeviceSettings

STYLES = ("type", "ssh", "srun")
OWN_KEYS = ("server_rank", "master")


def composed(overrides: Iterable[str]) -> Config:
    """The job that `run.py` with these overrides would train.

    Raises:
        ConfigError: with the sentence that `run.py` gives.
    """
    compose.register()
    try:
        with initialize_config_dir(str(CONF), version_base="1.3"):
            config = compose.typed(hydra.compose("config", readable(list(overrides))))
    except HYDRA_ERRORS as error:
        raise ConfigError(sentence(error)) from error
    if bad := bad_values(config):
        raise ConfigError("\n".join(bad))
    return config


def topology(name: str) -> DeviceSettings:
    """A preset of `conf/device`.

    Raises:
        ConfigError: there is none of this name.
    """
    return composed([f"device={name}"]).device


def plan(overrides: Sequence[str], hosts: Sequence[str], port: int, style: str, folder: Path = ROOT) -> list[str]:
    """Lines for a shell: comments, and the commands that start the job.

    Args:
        overrides: as for `run.py`, without `device.server_rank` and `device.master`.
        hosts: one for each server; the first is the master. May be empty if there is one server.
        port: of the master; the next one is used too.
        style: `type` for commands to type on each server, `ssh` for commands to type here, `srun` for one command
            in a Slurm allocation.
        folder: the repository's, the same on all servers.

    Raises:
        ConfigError: an override, a host or the port cannot be right.
        CombinationError: hosts and topology do not fit, or an override says what the plan says.
    """
    device = composed(overrides).device
    for key in OWN_KEYS:
        if getattr(device, key) is not None:
            raise CombinationError(f"device.{key} is what the plan finds for each server; leave it out.")
    run = ["python", "run.py", *overrides]
    virtual = device.simulate == "always"
    if device.servers == 1 or virtual:
        if len(hosts) > 1:
            reason = "is simulated in one process" if virtual else "has one server"
            raise CombinationError(
                f"--hosts names {len(hosts)} servers and device={device.name} {reason}; leave --hosts out."
            )
        return [f"# device={device.name} is started on one server, by one command:", shlex.join(run)]
    _check_hosts(hosts, device, style)
    _check_port(port)
    master = f"device.master={hosts[0]}:{port}"
    lines = [
        f"# {device.servers} servers of {device.ranks_per_server} ranks each, which meet at {hosts[0]}: "
        f"its ports {port} and {port + 1} must be free there and reachable from all servers."
    ]
    if style == "srun":
        return [*lines, *_srun(f"{shlex.join(run)} device.server_rank=$SLURM_NODEID {master}", hosts, folder)]
    if style == "ssh":
        lines.append("# Each ends with the job, so type each in a terminal of its own, within device.timeout_s.")
        run[0] = _python()
    for rank, host in enumerate(hosts):
        command = shlex.join([*run, f"device.server_rank={rank}", master])
        if style == "ssh":
            lines.append(f"ssh -t {host} {shlex.quote(_inside(folder, command))}")  # -t passes an interrupt on
        else:
            lines += [f"# on {host}, in the folder of msaccel:", command]
    return lines


def _inside(folder: Path, command: str) -> str:
    return f"cd {shlex.quote(str(folder))} && {command}"


def _srun(command: str, hosts: Sequence[str], folder: Path) -> list[str]:
    srun = f"srun --nodes={len(hosts)} --ntasks-per-node=1 --nodelist={','.join(hosts)} sh -c"
    return [
        f"# Slurm numbers the nodes in an order of its own; {hosts[0]} must be its node 0, as this shows:",
        f"# {srun} 'echo $SLURM_NODEID $SLURMD_NODENAME'",
        f"{srun} {shlex.quote(_inside(folder, command))}",
    ]


def _python() -> str:
    """The interpreter for a shell without the environment's PATH: from the repository, where it lies there."""
    path = Path(sys.executable)
    return str(path.relative_to(ROOT)) if path.is_relative_to(ROOT) else "python"


def _check_hosts(hosts: Sequence[str], device: DeviceSettings, style: str) -> None:
    for host in hosts:
        if not re.fullmatch(r"[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?", host):
            raise ConfigError(
                f"--hosts names '{on_one_line(host)}', which is no host; write names or IPv4 addresses, separated "
                "by commas."
            )
    if len(hosts) != device.servers:
        given = ",".join(["a", "b", "c", "d"][: device.servers])
        raise CombinationError(
            f"--hosts names {len(hosts)} of the {device.servers} servers of device={device.name}; write one host for "
            f"each, such as --hosts {given}{',…' if device.servers > 4 else ''}."
        )
    # Servers of CPU ranks may be one machine, which Slurm would not list twice.
    if len(set(hosts)) < len(hosts) and (device.target != "CPU" or style == "srun"):
        raise CombinationError("--hosts names a host twice; write another one for each server.")


def _check_port(port: int) -> None:
    if not 1 <= port <= 65534:
        raise ConfigError(f"--port={port} is out of range; write one from 1 to 65534, since the next is used too.")
