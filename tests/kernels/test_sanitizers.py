"""The operators, built with their own driver, are clean under AddressSanitizer and UndefinedBehaviorSanitizer."""

import hashlib
import os
import subprocess
from pathlib import Path

import pytest

from msaccel.kernels import build

DRIVER = Path(__file__).with_name("sanitized.cc")
SANITIZE = ("-fsanitize=address,undefined", "-fno-sanitize-recover=all", "-g", "-O1", "-std=c++17", "-pthread")


def sanitized() -> Path:
    """The program, compiled if the cache lacks it: that takes more than a minute, while it runs for seconds."""
    dnnl, compiler = build.onednn(), build.find_compiler()
    version = subprocess.run([*compiler, "--version"], capture_output=True, text=True, check=True, timeout=60).stdout
    parts = [build.source_digest(), DRIVER.read_text(), *compiler, version, *SANITIZE, str(dnnl)]
    program = build.cache_folder() / "sanitized" / hashlib.sha256("\0".join(parts).encode()).hexdigest()[:16]
    if not program.exists():
        program.parent.mkdir(parents=True, exist_ok=True)
        part = program.with_suffix(f".{os.getpid()}.part")
        sources = map(str, [DRIVER, *sorted(build.NATIVE.glob("*.cc"))])
        linked = [str(dnnl), f"-Wl,-rpath,{dnnl.parent}"]
        subprocess.run([*compiler, *SANITIZE, *sources, "-o", str(part), *linked], check=True, timeout=1800)
        os.replace(part, program)
    return program


@pytest.mark.slow
def test_no_address_and_no_behaviour_is_out_of_bounds() -> None:
    environment = {**os.environ, "OMP_NUM_THREADS": "3"}
    ended = subprocess.run([sanitized()], capture_output=True, text=True, timeout=1800, env=environment)
    assert ended.returncode == 0 and ended.stdout == "clean\n", ended.stderr
