"""The file of a rank table: reads it with the place of each key, and writes it as the tutorials lay it out."""

from __future__ import annotations

import json
from pathlib import Path

from msaccel.devices.located_json import Value, parse, read_text
from msaccel.devices.ranktable import (
    RESERVE,
    STATUS,
    VERSION,
    RankedDevice,
    RankTable,
    Server,
    consistent,
    server_name,
)
from msaccel.errors import ConfigError, counted, on_one_line
from msaccel.files import atomic_write_text


def read(path: Path) -> RankTable:
    """The table of a file.

    Raises:
        ConfigError: the file cannot be read, is no rank table or contradicts itself; the sentence names its line.
    """
    root = parse(path, read_text(path))
    keys = root.members("version", "server_count", "server_list", "status")
    for key, only in (("version", VERSION), ("status", STATUS)):
        if keys[key].text(only) != only:
            raise keys[key].error(f'{key} is "{on_one_line(keys[key].value)}"; write "{only}".')
    servers = tuple(_server(value) for value in keys["server_list"].items())
    if keys["server_count"].count() != len(servers):
        raise keys["server_count"].error(
            f"server_count is {keys['server_count'].value} and server_list holds {counted(len(servers), 'server')}; "
            f'write "{len(servers)}" or list the others.'
        )
    return consistent(RankTable(servers, {key: value.location for key, value in keys.items()}))


def _server(value: Value) -> Server:
    keys = value.members("server_id", "device", optional=("host_nic_ip",))
    nic = keys.get("host_nic_ip")
    return Server(
        server_name(keys["server_id"].text("10.0.0.1"), keys["server_id"].location),
        tuple(_device(item) for item in keys["device"].items()),
        RESERVE if nic is None else nic.text(RESERVE),
        {key: item.location for key, item in keys.items()},
    )


def _device(value: Value) -> RankedDevice:
    keys = value.members("device_id", "device_ip", "rank_id")
    return RankedDevice(
        keys["device_id"].count(),
        keys["device_ip"].text("192.1.27.6"),
        keys["rank_id"].count(),
        {key: item.location for key, item in keys.items()},
    )


def to_json(table: RankTable) -> str:
    """The file's text, laid out as in the tutorials: one device a line."""
    servers = [_server_json(server) for server in table.servers]
    return (
        f'{{\n    "version": "{VERSION}",\n    "server_count": "{len(servers)}",\n    "server_list": [\n'
        + ",\n".join(servers)
        + f'\n    ],\n    "status": "{STATUS}"\n}}\n'
    )


def _server_json(server: Server) -> str:
    keys = ("device_id", "device_ip", "rank_id")
    devices = (json.dumps({key: str(getattr(device, key)) for key in keys}) for device in server.devices)
    return (
        f'        {{\n            "server_id": {json.dumps(server.server_id)},\n            "device": [\n'
        + ",\n".join(f"                {device}" for device in devices)
        + f'\n            ],\n            "host_nic_ip": {json.dumps(server.host_nic_ip)}\n        }}'
    )


def write(table: RankTable, path: Path) -> None:
    """Writes the table atomically.

    Raises:
        ConfigError: it cannot be written there.
    """
    target = path.resolve()  # the file behind a link is replaced, not the link
    try:
        if target.exists() and not target.is_file():
            raise OSError(0, "no regular file")
        atomic_write_text(target, to_json(table))
    except OSError as error:
        raise ConfigError(f"{path} cannot be written ({error.strerror}); name a file that you may write.") from error
