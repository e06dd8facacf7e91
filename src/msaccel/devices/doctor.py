"""Whether a device can be used on this machine: one line for each finding, with what to do.

`run.py` asks `missing` to choose between real and virtual ranks, and `ports` before it starts servers; the command
`python -m msaccel doctor` shows all. MindSpore is not imported, and CUDA is only asked in a process of its own.
"""

from __future__ import annotations

import os
import platform
import re
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

from msaccel.devices import gpu, machine, nvidia
from msaccel.errors import counted
from msaccel.kernels.cores import ROOT, cores
from msaccel.schema import DeviceSettings

OK, WARNING, MISSING = "ok", "warning", "missing"
GB = 1e9
# A CPU rank with LeNet takes 0.5 GB once it trains.
RANK_BYTES = 0.6 * GB
OLDEST_CUDA = (11, 0)  # the driver runs all of CUDA 11 from here on


@dataclass(frozen=True)
class Finding:
    """The result of one check, and what to do about it."""

    level: str
    what: str
    mend: str = ""

    @property
    def ok(self) -> bool:
        """Whether this check allows the device to be used; a warning does."""
        return self.level != MISSING

    def __str__(self) -> str:
        return f"{self.what}; {self.mend}" if self.mend else self.what


def missing(device: DeviceSettings) -> list[str]:
    """Why the device's target cannot be used here, a sentence each; empty if it can.

    Ports are not checked: a port in use is for the user to free, never a reason to simulate. Takes 0.05 s; with an
    NVIDIA driver, once per process, as long as CUDA takes to start.
    """
    return [f"{finding}." for finding in target(device) if not finding.ok]


def software() -> Iterator[Finding]:
    """Python, MindSpore and NumPy, in the versions that fit together."""
    version = platform.python_version()
    if (3, 10) <= tuple(map(int, version.split(".")[:2])) < (3, 13):
        yield Finding(OK, f"Python {version}")
    else:
        yield Finding(MISSING, f"Python {version} is not one of 3.10 to 3.12", "make the environment with python3.11")
    wanted = next(iter(re.findall(r"^mindspore==([\w.]+)", "\n".join(metadata.requires("msaccel") or ()), re.M)), "")
    found, install = _version("mindspore"), f"write pip install mindspore=={wanted}"
    if found == wanted:
        yield Finding(OK, f"MindSpore {found}")
    elif found:
        yield Finding(WARNING, f"MindSpore {found} is not {wanted}, for which msaccel is tested", install)
    else:
        yield Finding(MISSING, "MindSpore is not installed", install)
    numpy = _version("numpy")
    if numpy and int(numpy.split(".")[0]) < 2:
        yield Finding(OK, f"NumPy {numpy}")
    else:
        what = f"NumPy {numpy} is not the NumPy 1 that MindSpore was built with" if numpy else "NumPy is not installed"
        yield Finding(MISSING, what, "write pip install 'numpy<2'")


def _version(package: str) -> str:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return ""


def target(device: DeviceSettings, root: Path = ROOT) -> list[Finding]:
    """Whether the device's processors can be used: driver, libraries, MindSpore's plugin, number, memory.

    Args:
        root: where the machine's files are; another folder in tests.
    """
    find = {"CPU": _cpu, "GPU": _gpu, "Ascend": _ascend}[device.target]
    return list(find(device, root))


def _cpu(device: DeviceSettings, root: Path) -> Iterator[Finding]:
    ranks = device.ranks if device.server_rank is None else device.ranks_per_server  # one call starts all servers
    there, wanted = cores(root), ranks * device.threads
    what = f"{counted(there, 'core')} for {counted(ranks, 'rank')} of {counted(device.threads, 'thread')}"
    if there >= wanted:
        yield Finding(OK, what)
    else:
        less = ["write device.threads=1"] * (device.threads > 1) + ["take fewer ranks"] * (ranks > there)
        mend = f"{' and '.join(less)}, or a machine of {wanted} cores"
        yield Finding(WARNING, f"{what}: threads take turns, and times mean little", mend)
    memory, need = machine.memory(root), ranks * RANK_BYTES
    if memory is None:
        return
    what = f"{memory.free / GB:.1f} of {memory.total / GB:.1f} GB memory free, {need / GB:.1f} GB needed or more"
    if memory.total < need:
        yield Finding(MISSING, what, "take fewer ranks, or a machine or limit with more memory")
    elif memory.free < need:
        yield Finding(WARNING, what, "end other programs, or take fewer ranks")
    else:
        yield Finding(OK, what)


def _gpu(device: DeviceSettings, root: Path) -> Iterator[Finding]:
    found = nvidia.query()
    release = ".".join(map(str, found.cuda))
    if found.error:
        yield Finding(
            MISSING, f"no usable NVIDIA driver ({found.error})", "install NVIDIA's driver (nvidia-smi tests it)"
        )
    elif found.cuda < OLDEST_CUDA:
        yield Finding(MISSING, f"NVIDIA's driver runs CUDA up to {release}, not 11", "install a newer NVIDIA driver")
    else:
        yield Finding(OK, f"NVIDIA driver for CUDA up to {release}")
    for index, card in enumerate(found.cards):
        yield Finding(OK, f"card {index}: {card.name}, {card.memory / GB:.0f} GB")
    if not found.error and len(found.cards) < device.ranks_per_server:
        yield _too_few(len(found.cards), device, "look at CUDA_VISIBLE_DEVICES")
    toolkit = gpu.toolkit()
    if toolkit:
        yield Finding(OK, f"CUDA toolkit {toolkit.release} in {toolkit.home}")
    else:
        yield from _cuda_packages()
    plugin = toolkit.plugin if toolkit else "11.6"
    if gpu.has_plugin(plugin):
        yield Finding(OK, f"MindSpore's plugin for CUDA {plugin}")
    else:
        yield Finding(
            MISSING, f"this MindSpore has no plugin for CUDA {plugin}", "install its wheel for Linux on x86_64"
        )
    yield Finding(
        WARNING, "training on a GPU is tested in part (docs/devices.md)", "compare with device=cpu before you trust it"
    )


def _cuda_packages() -> Iterator[Finding]:
    lacking = gpu.missing_packages()
    for found in gpu.toolkits():
        yield Finding(
            WARNING,
            f"the CUDA toolkit in {found.home} lacks {', '.join(found.lacking())}",
            "its place is taken by packages",
        )
    if lacking:
        yield Finding(MISSING, f"neither a CUDA 11.6 toolkit nor {', '.join(lacking)}", f"write {gpu.INSTALL}")
    for package in gpu.LIBRARIES.values():
        if package not in lacking:
            yield Finding(OK, f"{package} {metadata.version(package)}")


def _ascend(device: DeviceSettings, root: Path) -> Iterator[Finding]:
    cards = [path for path in (root / "dev").glob("davinci*") if re.fullmatch(r"davinci\d+", path.name)]
    if len(cards) < device.ranks_per_server:
        yield _too_few(len(cards), device, "look for /dev/davinci0 (a container must be given them)")
    else:
        yield Finding(OK, f"{len(cards)} NPUs")
    base = root / "usr" / "local" / "Ascend"
    if (base / "driver").is_dir():
        yield Finding(OK, f"Ascend driver in {base / 'driver'}")
    else:
        yield Finding(MISSING, f"no Ascend driver in {base / 'driver'}", "install it (npu-smi info tests it)")
    named = filter(None, (os.environ.get(name) for name in ("ASCEND_HOME_PATH", "ASCEND_TOOLKIT_HOME")))
    places = [*map(Path, named), base / "ascend-toolkit" / "latest", base / "ascend-toolkit"]
    toolkit = next((place for place in places if place.is_dir()), None)
    if toolkit:
        yield Finding(OK, f"CANN toolkit in {toolkit}")
    else:
        yield Finding(MISSING, f"no CANN toolkit in {base / 'ascend-toolkit'}", "install CANN, or set ASCEND_HOME_PATH")
    path = os.environ.get("LD_LIBRARY_PATH", "").split(os.pathsep)
    if any(Path(folder, "libge_runner.so").exists() for folder in path if folder):
        yield Finding(OK, "CANN's libraries on LD_LIBRARY_PATH")
    else:
        script = base / "ascend-toolkit" / "set_env.sh"
        yield Finding(MISSING, "CANN's libge_runner.so is not on LD_LIBRARY_PATH", f"run source {script} first")
    plugins = gpu.plugin_folder()
    if plugins and list(plugins.glob("libmindspore_ascend.so*")):
        yield Finding(OK, "MindSpore's plugin for Ascend")
    else:
        yield Finding(MISSING, "this MindSpore has no plugin for Ascend", "install its wheel for Linux")


def _too_few(there: int, device: DeviceSettings, mend: str) -> Finding:
    fewer = f", or write device.ranks_per_server={there}" if there else ""
    what = f"{counted(there, f'{device.target} card')} for {counted(device.ranks_per_server, 'rank')}"
    return Finding(MISSING, what, mend + fewer)


def ports(device: DeviceSettings) -> Iterator[Finding]:
    """Whether the servers can meet at `device.master`: its two ports here on server 0, its name on the others."""
    if device.master is None:
        return
    host, _, text = device.master.rpartition(":")
    port = int(text)
    if not 0 < port < 65535:
        what = f"device.master={device.master} and the next port are no two ports"
        yield Finding(MISSING, what, f"write device.master={host}:8118")
    elif device.server_rank:
        trouble = machine.host_trouble(host)
        what, mend = f"server 0 at {host}", "write server 0's address, as it says itself, in device.master"
        yield Finding(MISSING, f"device.master={device.master}: {trouble}", mend) if trouble else Finding(OK, what)
    else:
        for number in (port, port + 1):
            trouble = machine.port_trouble(host, number)
            mend = f"write device.master={host}: with another port, or an address of this machine, on every server"
            what = f"device.master={device.master}: {trouble}"
            yield Finding(MISSING, what, mend) if trouble else Finding(OK, f"port {number} of {host} is free")
