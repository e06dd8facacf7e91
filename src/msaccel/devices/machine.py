"""What this process may use of the machine, within the limits set for it, memory and ports; and what it has used."""

from __future__ import annotations

import errno
import re
import resource
import socket
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from msaccel.kernels.cores import ROOT, groups, read


@dataclass(frozen=True)
class Memory:
    """Memory in bytes: what this process could ever have, and how much of that is free now."""

    total: int
    free: int


def memory(root: Path = ROOT) -> Memory | None:
    """Memory this process may use: the machine's, or less where a control group limits it; None if unknown."""
    sizes = dict(re.findall(r"^(\w+):\s+(\d+) kB$", read(root / "proc" / "meminfo"), re.MULTILINE))
    if not {"MemTotal", "MemAvailable"} <= sizes.keys():
        return None
    total, free = int(sizes["MemTotal"]) * 1024, int(sizes["MemAvailable"]) * 1024
    for limit, used in _limits(root):
        total, free = min(total, limit), min(free, limit - used)
    return Memory(total, max(free, 0))


def peak_mb() -> float:
    """The largest resident memory of this process so far, in MB (10⁶ bytes).

    `getrusage` also counts the program that this one has replaced in its process: the launcher that started it.
    """
    found = re.search(r"^VmHWM:\s+(\d+) kB$", read(ROOT / "proc" / "self" / "status"), re.MULTILINE)
    kilobytes = int(found[1]) if found else resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return kilobytes * 1024 / 1e6


def _limits(root: Path) -> Iterator[tuple[int, int]]:
    """The limit and the use of it, for every group that this process belongs to; cached files count as free."""
    files = {"": ("memory.max", "memory.current"), "memory": ("memory.limit_in_bytes", "memory.usage_in_bytes")}
    for controller, (limit, current) in files.items():
        for folder in groups(root, controller):
            size, used = read(folder / limit), read(folder / current)
            if size.isdigit() and used.isdigit():  # or max
                cached = re.search(r"^(?:total_)?inactive_file (\d+)$", read(folder / "memory.stat"), re.MULTILINE)
                yield int(size), max(int(used) - int(cached[1] if cached else 0), 0)


def port_trouble(host: str, port: int) -> str:
    """Why a server cannot listen at an address of this machine, in a few words; empty if it can."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    except (socket.gaierror, UnicodeError):
        return f"{host} is no known host"
    with socket.socket(family, kind, protocol) as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # a port that was just left is free
        try:
            listener.bind(address)
            listener.listen()
        except OSError as error:
            reasons = {
                errno.EADDRINUSE: f"port {port} is taken",
                errno.EADDRNOTAVAIL: f"{host} is no address of this machine",
                errno.EACCES: f"port {port} needs an administrator's rights",
            }
            return reasons.get(error.errno or 0, f"port {port} cannot be used ({error.strerror})")
    return ""


def host_trouble(host: str) -> str:
    """Why another machine's address cannot be used, in a few words; empty if it can."""
    try:
        socket.getaddrinfo(host, None)
    except (socket.gaierror, UnicodeError):
        return f"{host} is no known host"
    return ""
