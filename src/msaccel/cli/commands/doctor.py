"""`doctor`: whether devices can be used on this machine, and what to do if not."""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Iterator

from rich.console import Console
from rich.text import Text

from msaccel.config.groups import GROUPS
from msaccel.devices.doctor import MISSING, OK, WARNING, Finding, ports, software, target
from msaccel.kernels import build, processor

MARKS = {OK: ("✓", "green"), WARNING: ("!", "yellow"), MISSING: ("✗", "red")}


def operators() -> Iterator[Finding]:
    """The operators that compute convolutions on a CPU."""
    try:
        found = build.cached() or build.find_compiler()[0]
        yield Finding(OK, f"kernels: convolutions by oneDNN, with {found}")
        if processor.block() is None:
            yield Finding(WARNING, "kernels: no AVX2, with which a ResNet's convolutions are up to twice as fast")
    except build.UnavailableError as error:
        yield Finding(WARNING, f"kernels: convolutions as unfold and matrix product, several times slower: {error}")


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "overrides",
        nargs="*",
        metavar="KEY=VALUE",
        help="a device and its keys as for run.py, such as device=gpu device.threads=1; without it, every preset",
    )


def run(options: argparse.Namespace) -> int:
    from msaccel.config.compose import from_overrides

    named = [options.overrides] if options.overrides else [[f"device={name}"] for name in GROUPS["device"]]
    devices = [from_overrides(overrides).device for overrides in named]
    console = Console(soft_wrap=True, highlight=False)
    everywhere = [*software(), *operators()]
    show(console, "for every device", everywhere)
    usable = {}
    for device in devices:
        found = [*target(device), *ports(device)]
        usable[device.name] = all(finding.ok for finding in [*everywhere, *found])
        show(console, f"device={device.name}{'' if usable[device.name] else ': cannot be used here'}", found)
    return 0 if usable[devices[0].name if options.overrides else "cpu"] else 1


def show(console: Console, title: str, found: Iterable[Finding]) -> None:
    """Prints a title and one line for each finding."""
    console.print(Text(title, style="bold"))
    for finding in found:
        mark, colour = MARKS[finding.level]
        console.print(Text.assemble("  ", (mark, colour), f" {finding}"))
