"""The rank table of HCCL, version 1.0: which NPU of which server is which rank.

It is the JSON of the tutorials on dimension reduction (1 × 8) and adaptive summation (2 × 8), and "template 1" of
Ascend's manual, where `server_id` is any text that is unique and `host_nic_ip` may be left out.
Stricter than the manual: ranks count from 0 in the order in which the servers and their devices are listed, and keys
that version 1.0 does not have are refused, so that merging loses nothing.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from msaccel.devices.located_json import Location
from msaccel.errors import CombinationError, ConfigError, counted, on_one_line
from msaccel.schema import DeviceSettings

VERSION, STATUS, RESERVE = "1.0", "completed", "reserve"


@dataclass(frozen=True)
class RankedDevice:
    """One NPU: `device_ip` is the address of its own network card. `locations` says where each key was read."""

    device_id: int
    device_ip: str
    rank_id: int
    locations: Mapping[str, Location] = field(default_factory=dict, compare=False, repr=False)


@dataclass(frozen=True)
class Server:
    server_id: str
    devices: tuple[RankedDevice, ...]
    host_nic_ip: str = RESERVE
    locations: Mapping[str, Location] = field(default_factory=dict, compare=False, repr=False)


@dataclass(frozen=True)
class RankTable:
    servers: tuple[Server, ...]
    locations: Mapping[str, Location] = field(default_factory=dict, compare=False, repr=False)

    def __str__(self) -> str:
        servers, ranks = len(self.servers), sum(len(server.devices) for server in self.servers)
        return f"{counted(servers, 'server')} with {counted(ranks, 'rank')}"


def server_name(text: str, location: Location) -> str:
    """The text, if it can name a server: an address, or a name that does not look like one.

    Raises:
        ConfigError: it cannot.
    """
    if re.fullmatch(r"[0-9.]*|.*:.*", text, re.DOTALL):
        address(text, location, "server_id")
    elif not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]*", text):
        raise ConfigError(
            f'{location}: server_id "{on_one_line(text)}" is no address or name; write one such as 10.0.0.1 or node_0.'
        )
    return text


def address(text: str, location: Location, key: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address:
    """Parses the text as an IP address.

    Raises:
        ConfigError: it is not one.
    """
    try:
        return ipaddress.ip_address(text)
    except ValueError:
        raise ConfigError(
            f'{location}: {key} "{on_one_line(text)}" is no IPv4 or IPv6 address; write one such as 192.1.27.6.'
        ) from None


def consistent(table: RankTable) -> RankTable:
    """The table itself, once nothing in it contradicts the rest.

    Raises:
        ConfigError: a server, rank, device or address stands twice, an address is none, a list is empty, or the
            ranks do not count from 0 in the order of the list.
    """
    if not table.servers:
        raise ConfigError(f"{_location(table, 'server_list')}: server_list is empty; list at least one server.")
    servers: dict[object, Location] = {}
    ranks: dict[object, Location] = {}
    addresses: dict[object, Location] = {}
    for server in table.servers:
        _once(servers, server.server_id, _location(server, "server_id"), f"server_id {server.server_id}")
        if server.host_nic_ip != RESERVE:
            address(server.host_nic_ip, _location(server, "host_nic_ip"), "host_nic_ip")
        if not server.devices:
            raise ConfigError(
                f"{_location(server, 'device')}: server {server.server_id} has no device; list one, or drop the server."
            )
        ids: dict[object, Location] = {}
        for device in server.devices:
            _once(ids, device.device_id, _location(device, "device_id"), f"device_id {device.device_id} of this server")
            where = _location(device, "device_ip")
            _once(addresses, address(device.device_ip, where, "device_ip"), where, f"device_ip {device.device_ip}")
            _once(ranks, device.rank_id, _location(device, "rank_id"), f"rank_id {device.rank_id}")
    for expected, device in enumerate(device for server in table.servers for device in server.devices):
        if device.rank_id != expected:
            raise ConfigError(
                f"{_location(device, 'rank_id')}: rank_id {device.rank_id} stands where rank {expected} belongs, since "
                f'ranks count from 0 in the order of the servers and their devices; write "{expected}".'
            )
    return table


def _location(part: RankTable | Server | RankedDevice, key: str) -> Location:
    return part.locations.get(key, Location("rank table"))


def _once(seen: dict[object, Location], value: object, location: Location, said: str) -> None:
    if value in seen:
        raise ConfigError(f"{location}: {said} stands already {seen[value].seen_from(location)}; give each its own.")
    seen[value] = location


def merge(tables: Iterable[RankTable]) -> RankTable:
    """One table of all servers, in the order given, with the ranks counted anew.

    Raises:
        ConfigError: two of the tables share a server or an address.
    """
    servers, rank = [], 0
    for server in (server for table in tables for server in table.servers):
        devices = tuple(replace(device, rank_id=rank + i) for i, device in enumerate(server.devices))
        servers.append(replace(server, devices=devices))
        rank += len(devices)
    return consistent(RankTable(tuple(servers)))


def check(table: RankTable, device: DeviceSettings) -> None:
    """Checks that the table describes the topology.

    Raises:
        CombinationError: it has other servers or ranks, or the topology is not one of Ascend devices.
    """
    if device.target != "Ascend":
        raise CombinationError(
            f"device={device.name} runs on {device.target}, which has no rank table; write one such as device=ascend8."
        )
    mend = f"write a device of this shape, or a table with {device.servers} × {device.ranks_per_server} ranks."
    if len(table.servers) != device.servers:
        raise CombinationError(
            f"{_location(table, 'server_list')}: the table lists {counted(len(table.servers), 'server')} where "
            f"device={device.name} has {device.servers}; {mend}"
        )
    for server in table.servers:
        if (ranks := len(server.devices)) != device.ranks_per_server:
            raise CombinationError(
                f"{_location(server, 'device')}: server {server.server_id} lists {counted(ranks, 'rank')} "
                f"where device={device.name} has {device.ranks_per_server} on each; {mend}"
            )


def of_server(table: RankTable, server_rank: int | None) -> list[tuple[int, int]]:
    """The (rank_id, device_id) of each rank that one server starts.

    Args:
        server_rank: which server, counted from 0; may be None if there is one only.

    Raises:
        CombinationError: `server_rank` is missing though there are several servers, or there is no such server.
    """
    last = len(table.servers) - 1
    if server_rank is None and last:
        raise CombinationError(
            f"device.server_rank says nothing where the rank table lists {last + 1} servers; "
            f"write device.server_rank=0 on the first of them, up to {last} on the last."
        )
    if not 0 <= (server_rank or 0) <= last:
        raise CombinationError(
            f"device.server_rank={server_rank} is not in the rank table of {counted(last + 1, 'server')}; "
            f"write device.server_rank={f'0 to {last}' if last else 0}."
        )
    return [(device.rank_id, device.device_id) for device in table.servers[server_rank or 0].devices]
