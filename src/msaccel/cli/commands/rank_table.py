"""HCCL's rank table: written from addresses, merged from the tables of single servers, or checked.

Addresses of the NPUs' network cards are given as one list for each server,

    --servers 10.0.0.1,10.0.0.2 --device-ips 192.1.27.6,192.2.27.6,… 192.1.27.8,192.2.27.8,…

or are read from copies of the servers' /etc/hccn.conf: --hccn first.conf second.conf.
"""

from __future__ import annotations

import argparse
import re
from pathlib import Path

from msaccel.config.compose import from_overrides
from msaccel.config.groups import GROUPS
from msaccel.devices import ranktable, ranktable_file
from msaccel.devices.located_json import Location, read_text
from msaccel.devices.ranktable import RankedDevice, RankTable, Server, consistent, server_name
from msaccel.errors import CombinationError, ConfigError, on_one_line
from msaccel.schema import DeviceSettings

DEFAULT_DEVICE = "ascend8"


def options(parser: argparse.ArgumentParser) -> None:
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.description = __doc__
    parser.add_argument(
        "--device",
        help=f"topology: ascend1, ascend8, ascend16; {DEFAULT_DEVICE} when written from addresses, and otherwise "
        "compared only if given",
    )
    task = parser.add_mutually_exclusive_group(required=True)
    task.add_argument("--servers", metavar="A,B", help="write a table of these servers, named by their addresses")
    task.add_argument("--merge", nargs="+", type=Path, metavar="FILE", help="write one table of the servers of these")
    task.add_argument("--check", type=Path, metavar="FILE", help="only say whether this table is right")
    cards = parser.add_mutually_exclusive_group()
    cards.add_argument("--device-ips", nargs="+", metavar="A,B,…", help="addresses, in the order of device ids")
    cards.add_argument("--hccn", nargs="+", type=Path, metavar="FILE", help="/etc/hccn.conf of each server")
    parser.add_argument("--output", type=Path, metavar="FILE", help="where the table is written; printed if left out")


def run(options: argparse.Namespace) -> int:
    table = _table(options)
    if options.check:
        print(f"{options.check} is right: {table}")
    elif options.output:
        ranktable_file.write(table, options.output)
        print(f"{options.output}: {table}")
    else:
        print(ranktable_file.to_json(table), end="")
    return 0


def _table(options: argparse.Namespace) -> RankTable:
    if options.check and options.output:
        raise CombinationError("--output has no effect with --check; leave it out.")
    content = options.servers is not None
    if not content and (options.device_ips or options.hccn):
        raise CombinationError("--device-ips and --hccn have no effect without --servers; leave them out.")
    device = _topology(options.device or DEFAULT_DEVICE) if content or options.device else None
    if content and device:
        table = _from_addresses(options, device)
    elif options.merge:
        if twice := next((path for i, path in enumerate(options.merge) if path in options.merge[:i]), None):
            raise CombinationError(f"--merge names {twice} twice; name the table of each server once.")
        table = ranktable.merge(ranktable_file.read(path) for path in options.merge)
    else:
        table = ranktable_file.read(options.check)
    if device:
        ranktable.check(table, device)
    return table


def _topology(name: str) -> DeviceSettings:
    if name not in GROUPS["device"]:
        known = ", ".join(option for option in GROUPS["device"] if option.startswith("ascend"))
        raise ConfigError(f"--device={on_one_line(name)} does not exist; write --device with one of {known}.")
    return from_overrides([f"device={name}"]).device


def _from_addresses(options: argparse.Namespace, device: DeviceSettings) -> RankTable:
    names = options.servers.split(",")
    cards = options.hccn or options.device_ips
    if not cards:
        raise CombinationError("--servers has no addresses of NPUs; write --device-ips or --hccn for each server too.")
    for key, given in (("--servers", names), ("--hccn" if options.hccn else "--device-ips", cards)):
        if len(given) != device.servers:
            raise CombinationError(
                f"{key} is given for {len(given)} of the {device.servers} servers of device={device.name}; "
                "give it once for each, or another --device."
            )
    servers, rank = [], 0
    for name, card in zip(names, cards, strict=True):
        location = Location("--servers")
        addresses = _of_hccn(card, device.ranks_per_server) if options.hccn else _of_list(card, name, device)
        devices = [RankedDevice(i, ip, rank + i, {"device_ip": read}) for i, (ip, read) in enumerate(addresses)]
        servers.append(Server(server_name(name, location), tuple(devices), locations={"server_id": location}))
        rank += len(devices)
    return consistent(RankTable(tuple(servers)))


def _of_list(card: str, server: str, device: DeviceSettings) -> list[tuple[str, Location]]:
    addresses = card.split(",")
    if len(addresses) != device.ranks_per_server:
        raise CombinationError(
            f"--device-ips of server {server} names {len(addresses)} of {device.ranks_per_server} addresses; "
            "write one for each NPU, separated by commas."
        )
    return [(address, Location(f"--device-ips of server {server}")) for address in addresses]


def _of_hccn(path: Path, count: int) -> list[tuple[str, Location]]:
    """The addresses of devices 0 to count - 1, from lines such as `address_0=192.1.27.6`; other lines are passed."""
    found: dict[int, tuple[str, Location]] = {}
    for number, line in enumerate(read_text(path).split("\n"), start=1):
        if match := re.fullmatch(r"\s*address_([0-9]{1,3})\s*=\s*(.*?)\s*", line):
            location = Location(str(path), number)
            if (device_id := int(match[1])) in found:
                before = found[device_id][1].seen_from(location)
                raise ConfigError(f"{location}: address_{device_id} stands already {before}; keep one of the two.")
            found[device_id] = match[2], location
    if missing := [i for i in range(count) if i not in found]:
        last = Location(str(path), max((location.line for _, location in found.values()), default=1))
        raise ConfigError(
            f"{last}: no line address_{missing[0]}= follows, and {count} are needed; add it, or write another --device."
        )
    return [found[i] for i in range(count)]
