"""The operators, built with their own driver, are clean under the sanitizers of addresses, behaviour and threads."""

import hashlib
import os
import subprocess
from pathlib import Path

import pytest

from msaccel.kernels import build

DRIVER = Path(__file__).with_name("sanitized.cc")
FLAGS = ("-fno-sanitize-recover=all", "-g1", "-O1", "-w", "-std=c++17", "-pthread")


def sanitized(sanitizers: str) -> Path:
    """The program, compiled if the cache lacks it: that takes more than a minute, while it runs for seconds."""
    dnnl, compiler = build.onednn(), build.find_compiler()
    flags = (f"-fsanitize={sanitizers}", *FLAGS)
    version = subprocess.run([*compiler, "--version"], capture_output=True, text=True, check=True, timeout=60).stdout
    parts = [build.source_digest(), DRIVER.read_text(), *compiler, version, *flags, str(dnnl)]
    program = build.cache_folder() / "sanitized" / hashlib.sha256("\0".join(parts).encode()).hexdigest()[:16]
    if not program.exists():
        program.parent.mkdir(parents=True, exist_ok=True)
        part = program.with_suffix(f".{os.getpid()}.part")
        sources = map(str, [DRIVER, *sorted(build.NATIVE.glob("*.cc"))])
        linked = [str(dnnl), f"-Wl,-rpath,{dnnl.parent}"]
        subprocess.run([*compiler, *flags, *sources, "-o", str(part), *linked], check=True, timeout=1800)
        os.replace(part, program)
    return program


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize(
    ("sanitizers", "threads"), [("address,undefined", 3), ("thread", 4)], ids=["address", "thread"]
)
def test_the_sanitizers_find_nothing(sanitizers: str, threads: int) -> None:
    """That of threads sees no access within oneDNN, which is not built for it, and so nothing to suppress."""
    environment = {**os.environ, "OMP_NUM_THREADS": str(threads), "TSAN_OPTIONS": "halt_on_error=1"}
    ended = subprocess.run([sanitized(sanitizers)], capture_output=True, text=True, timeout=1800, env=environment)
    if "unexpected memory mapping" in ended.stderr:
        pytest.skip("this compiler's ThreadSanitizer does not start under this kernel's randomised addresses")
    assert ended.returncode == 0 and ended.stdout == "clean\n", ended.stderr
