"""Builds the native operators into a shared library with the system's compiler, once, and caches it.

The library lies in `kernels/<sources>-<compiler>/` of msaccel's cache, with its SHA-256 beside it. `<sources>` is a
digest of the sources, the flags and MindSpore's version, `<compiler>` one of the compiler's version. The library is
written under a lock and a temporary name, so several processes may build at the same time, and an interrupted build or
a damaged file is built again.
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

from filelock import FileLock, Timeout

NATIVE = Path(__file__).with_name("native")
# None of these depends on the machine: oneDNN and native/dispatch.h look at the processor when they run.
FLAGS = (
    "-std=c++17", "-O3", "-ffp-contract=off", "-shared", "-fPIC", "-fvisibility=hidden", "-pthread", "-Wno-psabi",
    "-fno-math-errno",  # otherwise a square root is a function call
)  # fmt: skip
COMPILERS = ("g++", "c++", "clang++")
NAME = "libmsaccel_kernels.so"
_SECONDS_TO_BUILD = 300
_SECONDS_TO_PROBE = 60
_SECONDS_TO_ANSWER = 20  # with a version


class KernelError(Exception):
    """An error of this package that the user can put right; the message is one sentence."""


class UnavailableError(KernelError):
    """The native operators are not available; the message says why and what helps."""


def library() -> Path:
    """Path of the library, which is built if the cache has no intact one.

    Raises:
        UnavailableError: there is no compiler, it failed, the library it built does not work here, or another process
            has been building for too long.
    """
    if found := cached():
        return found
    compiler = find_compiler()
    folder = cache_folder() / f"{source_digest()[:16]}-{_digest(str(_version_of(tuple(compiler))))[:8]}"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with FileLock(folder / "lock", timeout=_SECONDS_TO_BUILD + _SECONDS_TO_PROBE):
            if not is_intact(folder / NAME):
                _build(compiler, folder / NAME)
    except Timeout as error:
        raise UnavailableError(
            f"another process has held {folder / 'lock'} for longer than a build takes; end that, then run this again."
        ) from error
    except OSError as error:
        raise UnavailableError(
            f"{error.filename or folder} cannot be written ({error.strerror}); "
            "set MSACCEL_CACHE to a folder that can, then run this again."
        ) from error
    return folder / NAME


def cached() -> Path | None:
    """An intact library of these sources in the cache, whichever compiler built it."""
    found = sorted(cache_folder().glob(f"{source_digest()[:16]}-*/{NAME}"))
    return next(filter(is_intact, found), None)


def cache_folder() -> Path:
    folder = os.environ.get("MSACCEL_CACHE", "~/.cache/msaccel")
    try:
        return Path(folder).expanduser() / "kernels"
    except RuntimeError as error:
        raise UnavailableError(
            f"MSACCEL_CACHE={folder} begins with the home of a user who is not here; set it to another folder."
        ) from error


def is_intact(path: Path) -> bool:
    """Whether the file has the SHA-256 that was recorded after its probe passed."""
    try:
        return _sum(path).read_text() == hashlib.sha256(path.read_bytes()).hexdigest()
    except (OSError, UnicodeDecodeError):
        return False


def find_compiler() -> list[str]:
    """The C++ compiler's command: $CXX, or the first of `COMPILERS` on the PATH that answers.

    Raises:
        UnavailableError: there is none, or this is another system than Linux.
    """
    if (system := platform.system()) != "Linux":
        name = {"Darwin": "macOS"}.get(system, system)
        raise UnavailableError(f"the native operators need Linux, and this is {name}; run this under Linux.")
    silent = []
    names = [os.environ["CXX"]] if os.environ.get("CXX") else COMPILERS
    for name in names:
        try:
            command = shlex.split(name)
        except ValueError as error:
            raise UnavailableError(
                f"CXX={name} is no command ({error}); set CXX to a compiler, then run this again."
            ) from error
        if command and (path := shutil.which(command[0])):
            if _version_of((path, *command[1:])) is not None:
                return [path, *command[1:]]
            silent.append(path)
    if silent:
        raise UnavailableError(
            f"{' and '.join(silent)} did not answer --version within {_SECONDS_TO_ANSWER} seconds; "
            "set CXX to another compiler, then run this again."
        )
    raise UnavailableError(
        f"no C++ compiler was found ({' or '.join(names)}); install g++ or set CXX, then run this again."
    )


@cache
def source_digest() -> str:
    """A digest of everything but the compiler that determines what the library computes."""
    parts = [version("mindspore"), platform.machine(), *FLAGS]
    for source in sorted([*NATIVE.glob("*.cc"), *NATIVE.glob("*.h")]):  # not the README
        parts += [source.name, source.read_text()]
    return _digest("\0".join(parts))


def tag() -> str:
    """Identifies the library's results: runs are compared bit by bit only if their tags are equal."""
    return f"onednn-{source_digest()[:8]}"


def onednn() -> Path:
    """Path of the oneDNN library that MindSpore ships.

    Raises:
        UnavailableError: it is not where MindSpore for Linux has it.
    """
    found = importlib.util.find_spec("mindspore")  # does not import it
    if found and found.origin:
        path = Path(found.origin).parent / "lib" / "libdnnl.so.3"
        if path.exists():
            return path
    raise UnavailableError(
        "MindSpore has no libdnnl.so.3 here; the operators on oneDNN need MindSpore 2.9 or later for Linux."
    )


def _build(compiler: list[str], path: Path) -> None:
    dnnl = onednn()
    for left in path.parent.glob("*.part"):  # of builds that were killed; their compilers may still be running
        left.unlink()
    part = path.with_suffix(f".{os.getpid()}.part")
    sources = map(str, sorted(NATIVE.glob("*.cc")))
    output = _run([*compiler, *FLAGS, *sources, str(dnnl), "-o", str(part)], _SECONDS_TO_BUILD)
    if output is not None:
        raise UnavailableError(
            f"the C++ compiler {compiler[0]} failed ({_told(output)}); set CXX to another one, then run this again."
        )
    probe = str(Path(__file__).with_name("probe.py"))
    output = _run([sys.executable, probe, str(part), str(dnnl)], _SECONDS_TO_PROBE)
    if output is not None:
        raise UnavailableError(
            f"the operators on oneDNN were built by {compiler[0]} and do not work here ({_told(output)}); "
            "set CXX to another compiler, then run this again."
        )
    _sum(path).write_text(hashlib.sha256(part.read_bytes()).hexdigest())
    os.replace(part, path)


def _run(command: list[str], seconds: float) -> str | None:
    """Runs a command. Returns None if it succeeds, else its output."""
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
    """The most informative line: the first that contains 'error', or the last."""
    lines = output.strip().splitlines()
    return next((line for line in lines if "error" in line.lower()), lines[-1])[:300].strip()


@cache
def _version_of(compiler: tuple[str, ...]) -> str | None:
    """The compiler's command and its version text; None if it does not answer, or cannot be executed."""
    try:
        output = subprocess.Popen(
            [*compiler, "--version"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            errors="replace",
            start_new_session=True,
        )
    except OSError:
        return None
    try:
        return f"{list(compiler)}\n{output.communicate(timeout=_SECONDS_TO_ANSWER)[0]}"
    except subprocess.TimeoutExpired:
        os.killpg(output.pid, signal.SIGKILL)  # with what it has started
        output.communicate()
        return None


def _sum(path: Path) -> Path:
    return path.with_suffix(".sha256")


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
