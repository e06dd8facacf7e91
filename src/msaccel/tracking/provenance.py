"""What a number was measured with: the state of the repository, packages, the machine."""

from __future__ import annotations

import os
import platform
import re
import subprocess
from functools import cache
from importlib.metadata import Distribution, distributions
from pathlib import Path

from msaccel.files import ROOT
from msaccel.kernels.processor import widest_instructions

# What decides a run, in the repository: a page or a study's results may change beside jobs.
_DECIDING = ("conf", "constraints.txt", "pyproject.toml", "run.py", "src")
CPUINFO = Path("/proc/cpuinfo")
_CPUINFO_LINE = re.compile(r"^([^:\n]+?)[ \t]*:[ \t]*(.*?)[ \t]*$", re.MULTILINE)
# What x86 and ARM call the model of a processor in cpuinfo, and how the tag does.
_NUMBERS = {"cpu family": "family", "model": "model", "CPU implementer": "implementer", "CPU part": "part"}
_HEADER = re.compile("^(Name|Version): (.*)$", re.MULTILINE)


DIRTY = "-dirty"  # ends the tag git_commit if files differed from that commit


@cache  # in a fork of a process that has imported everything, the code is that of the time of import
def git_commit() -> str:
    """The commit of the repository, `-dirty` behind it when code or configuration differ; `unknown` outside of git."""
    try:
        commit = _git("rev-parse", "HEAD").strip()
        changed = _git("status", "--porcelain", "--untracked-files=no", "--", *_DECIDING).strip()
        return f"{commit}{DIRTY}" if changed else commit
    except (OSError, subprocess.SubprocessError):
        return "unknown"


def differs_from(commit: str) -> bool:
    """Whether code or configuration are other than those of a commit, as `git_commit` named it."""
    commit = commit.removesuffix(DIRTY)
    if not re.fullmatch("[0-9a-f]{40,64}", commit):  # git would take `--output=FILE` for an option
        return commit != "unknown"
    try:
        return bool(_git("diff", "--name-only", commit, "--", *_DECIDING).strip())
    except (OSError, subprocess.SubprocessError):
        return True


def _git(*arguments: str) -> str:
    return subprocess.run(
        ["git", "-C", str(ROOT), *arguments], check=True, capture_output=True, text=True, timeout=10
    ).stdout


def processor(cpuinfo: Path = CPUINFO) -> str:
    """The processor's name, numbers and widest instructions, to tell apart machines that differ in speed or bits.

    In a virtual machine the name alone is often that of a whole line of processors: an `AMD EPYC` may lack AVX-512.
    """
    try:
        lines: dict[str, str] = dict(reversed(_CPUINFO_LINE.findall(cpuinfo.read_text())))  # the first of each
    except OSError:
        return _brand() or platform.processor() or platform.machine()
    name = lines.get("model name") or platform.processor() or platform.machine()
    numbers = [f"{label} {lines[key]}" for key, label in _NUMBERS.items() if key in lines]
    widest = widest_instructions(lines.get("flags", lines.get("Features", "")).split())
    details = ", ".join([*numbers, *([widest] if widest else [])])
    return f"{name} ({details})" if details else name


def _brand() -> str:
    """What macOS calls the processor, such as `Apple M1`; empty elsewhere."""
    try:
        command = ["sysctl", "-n", "machdep.cpu.brand_string"]
        return subprocess.run(command, check=True, capture_output=True, text=True, timeout=10).stdout.strip()
    except (OSError, subprocess.SubprocessError):
        return ""


def environment() -> str:
    """Machine, interpreter and the versions of all installed packages, a line each.

    Only names and versions: an index's address or a local path could hold a password.
    """
    machine = f"# {platform.platform()}, {os.cpu_count()} processors, Python {platform.python_version()}"
    packages = {_package(dist) for dist in distributions()}
    return "\n".join([machine, *sorted(packages, key=str.lower)]) + "\n"


def _package(dist: Distribution) -> str:
    """`numpy==1.26.4`. `dist.metadata` would read a package's description too: 0.4 s for 180 packages, here 0.02."""
    text = dist.read_text("METADATA") or dist.read_text("PKG-INFO") or ""
    headers = dict(_HEADER.findall(text.partition("\n\n")[0]))
    return f"{headers.get('Name')}=={headers.get('Version')}"
