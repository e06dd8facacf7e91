"""Resolves `device.simulate` for this machine: real or virtual ranks."""

from __future__ import annotations

import logging
from dataclasses import dataclass, replace

from msaccel.devices import doctor
from msaccel.distributed import handshake
from msaccel.errors import UserError
from msaccel.launch import rank_env
from msaccel.schema import DeviceSettings

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class ResolvedDevice:
    """A device whose ranks are known to be real or virtual.

    Attributes:
        device: with `simulate` either `always` or `never`.
        refusals: sentences; if there are any, nothing may start.
        warnings: lines for the user.
    """

    device: DeviceSettings
    refusals: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()


def resolve(device: DeviceSettings) -> ResolvedDevice:
    """Real ranks where the target can be used, virtual ones where it cannot and `simulate=auto` lets them.

    A single rank is not simulated unless `simulate=always` asks for it: it would be a job on the CPU by another name.
    """
    if device.simulate == "always":
        return ResolvedDevice(device)
    missing = doctor.missing(device)
    if not missing:
        return _real(replace(device, simulate="never"))
    what = f"device={device.name} cannot be used here: {missing[0].rstrip('.')}"
    more = f" ({len(missing) - 1} more: python -m msaccel doctor device={device.name})" if len(missing) > 1 else ""
    if device.ranks == 1 and device.target != "CPU":
        return ResolvedDevice(device, (f"{what}{more}, and one rank has nothing to simulate; use device=cpu.",))
    if device.simulate == "never":
        return ResolvedDevice(device, (f"{what}{more}; or write device.simulate=auto.",))
    if device.server_rank is not None or device.rank_table is not None:
        key = "device.rank_table" if device.rank_table is not None else "device.server_rank"
        refusal = f"{what}{more}; without it {key} would train a simulation of all servers on each."
        return ResolvedDevice(device, (refusal,))
    warning = f"WARNING: {what}{more}; it is simulated."
    return ResolvedDevice(replace(device, simulate="always"), warnings=(warning,))


def of_saved_run(device: DeviceSettings) -> DeviceSettings:
    """What a saved network computes on here: the device that trained it, or where that is missing the CPU, which any
    network can be evaluated on, with a warning."""
    if device.on_cpu or not (missing := doctor.missing(replace(device, servers=1, ranks_per_server=1))):
        return device
    what, why = f"device={device.name}, on which the run was trained,", missing[0].rstrip(".")
    _log.warning("%s cannot be used here (%s); its network computes on the CPU.", what, why)
    return replace(device, simulate="always")


def _real(device: DeviceSettings) -> ResolvedDevice:
    if device.servers > 1 and device.server_rank is None and device.target != "CPU":
        refusal = (
            f"device={device.name} has {device.servers} servers and this is one of them; see what to type on each: "
            f"python -m msaccel launch-plan device={device.name} --hosts HOST,HOST."
        )
        return ResolvedDevice(device, (refusal,))
    if device.server_rank is not None and (trouble := handshake.token_trouble()):
        return ResolvedDevice(device, (trouble,))
    if device.rank_table is not None:
        try:
            rank_env.rank_environments(device)
        except UserError as error:
            return ResolvedDevice(device, (str(error),))
    bad_ports = [f"{finding}." for finding in doctor.ports(device) if finding.level == "missing"]
    warnings = [f"WARNING: {finding}." for finding in doctor.target(device) if finding.level == "warning"]
    return ResolvedDevice(device, tuple(bad_ports), tuple(warnings))
