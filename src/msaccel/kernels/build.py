"""The operators on oneDNN as a shared library: built once by the system's compiler, then taken from the cache.

The library stands in `kernels/<sources>-<compiler>/` of msaccel's cache, with its SHA-256 beside it. The first half of
the name is a digest of the sources, the flags and MindSpore's version, the second one of the compiler's version. It is
written under a lock and another name first, so that processes may build at the same time, and a build that was
interrupted, or a file that was damaged, is built again.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import platform
import shlex
import shutil
import signal
import subprocess
import sys
from functools import cache
from importlib.metadata import version
from pathlib import Path

from filelock import FileLock

NATIVE = Path(__file__).with_name("native")
# Nothing here depends on the machine: what is worth it looks at the processor when it runs (native/vector.h, oneDNN).
FLAGS = (
    "-std=c++17", "-O3", "-ffp-contract=off", "-shared", "-fPIC", "-fvisibility=hidden", "-pthread", "-Wno-psabi",
    "-fno-math-errno",  # or a square root would be a call
)  # fmt: skip
COMPILERS = ("g++", "c++", "clang++")
NAME = "libmsaccel_kernels.so"
_SECONDS_TO_BUILD = 300
_SECONDS_TO_PROBE = 60


class Unavailable(Exception):
    """The library cannot be had; the message is a sentence that says why and what helps."""


def library() -> Path:
    """The library, built if the cache has none that is whole.

    Raises:
        Unavailable: there is no compiler, or it failed, or what it built does not work here.
    """
    if found := cached():
        return found
    compiler = find_compiler()
    folder = cache_folder() / f"{source_digest()[:16]}-{_digest(_version_of(compiler))[:8]}"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with FileLock(folder / "lock"):
            if not whole(folder / NAME):
                _build(compiler, folder / NAME)
    except OSError as error:
        raise Unavailable(
            f"{error.filename or folder} cannot be written ({error.strerror}); "
            "set MSACCEL_CACHE to a folder that can, then run python -m msaccel kernels build."
        ) from error
    return folder / NAME


def cached() -> Path | None:
    """A library in the cache that is whole and of these sources, whichever compiler built it."""
    found = sorted(cache_folder().glob(f"{source_digest()[:16]}-*/{NAME}"))
    return next(filter(whole, found), None)


def cache_folder() -> Path:
    return Path(os.environ.get("MSACCEL_CACHE", "~/.cache/msaccel")).expanduser() / "kernels"


def whole(path: Path) -> bool:
    """Whether the file is the one whose SHA-256 was written down when it had proved to work."""
    try:
        return _sum(path).read_text() == hashlib.sha256(path.read_bytes()).hexdigest()
    except (OSError, UnicodeDecodeError):
        return False


def find_compiler() -> list[str]:
    """The command that compiles C++: $CXX, or the first of the usual names that is on the PATH.

    Raises:
        Unavailable: there is none.
    """
    names = [os.environ["CXX"]] if os.environ.get("CXX") else COMPILERS
    for name in names:
        command = shlex.split(name)
        if command and (path := shutil.which(command[0])):
            return [path, *command[1:]]
    raise Unavailable(
        f"no C++ compiler was found ({' or '.join(names)}); "
        "install g++ or set CXX, then run python -m msaccel kernels build."
    )


@cache
def source_digest() -> str:
    """Of all that decides what the library does, but for the compiler."""
    parts = [version("mindspore"), platform.machine(), *FLAGS]
    for source in sorted(NATIVE.iterdir()):
        parts += [source.name, source.read_text()]
    return _digest("\0".join(parts))


def onednn() -> Path:
    """MindSpore's own oneDNN.

    Raises:
        Unavailable: there is none where it is on Linux.
    """
    found = importlib.util.find_spec("mindspore")  # does not import it
    if found and found.origin:
        path = Path(found.origin).parent / "lib" / "libdnnl.so.3"
        if path.exists():
            return path
    raise Unavailable("MindSpore has no libdnnl.so.3 here; the operators on oneDNN need MindSpore for Linux.")


def _build(compiler: list[str], path: Path) -> None:
    dnnl = onednn()
    for left in path.parent.glob("*.part"):  # by builds that were killed; their compilers may still run
        left.unlink()
    part = path.with_suffix(f".{os.getpid()}.part")
    sources = map(str, sorted(NATIVE.glob("*.cc")))
    output = _run([*compiler, *FLAGS, *sources, str(dnnl), "-o", str(part)], _SECONDS_TO_BUILD)
    if output is not None:
        raise Unavailable(
            f"the C++ compiler {compiler[0]} failed ({_told(output)}); "
            "set CXX to another one, then run python -m msaccel kernels build."
        )
    probe = str(Path(__file__).with_name("probe.py"))
    output = _run([sys.executable, probe, str(part), str(dnnl)], _SECONDS_TO_PROBE)
    if output is not None:
        raise Unavailable(
            f"the operators on oneDNN were built by {compiler[0]} and do not work here ({_told(output)}); "
            "set CXX to another compiler, then run python -m msaccel kernels build."
        )
    _sum(path).write_text(hashlib.sha256(part.read_bytes()).hexdigest())
    os.replace(part, path)


def _run(command: list[str], seconds: float) -> str | None:
    """None if the command succeeds, else what it wrote."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, errors="replace", timeout=seconds)
    except subprocess.TimeoutExpired:
        return f"still running after {seconds:.0f} seconds"
    if done.returncode == 0:
        return None
    if done.returncode < 0:
        return f"it was ended by {signal.Signals(-done.returncode).name}"
    return f"{done.stderr}\n{done.stdout}".strip() or f"exit code {done.returncode}"


def _told(output: str) -> str:
    """The line that says most."""
    lines = output.strip().splitlines()
    return next((line for line in lines if "error" in line.lower()), lines[-1])[:300].strip()


def _version_of(compiler: list[str]) -> str:
    done = subprocess.run([*compiler, "--version"], capture_output=True, text=True, errors="replace")
    return f"{compiler}\n{done.stdout}"


def _sum(path: Path) -> Path:
    return path.with_suffix(".sha256")


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
