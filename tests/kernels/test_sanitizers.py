"""The operators, built with their own driver, are clean under AddressSanitizer and UndefinedBehaviorSanitizer."""

import os
import subprocess
from pathlib import Path

import pytest

from msaccel.kernels import build

DRIVER = Path(__file__).with_name("sanitized.cc")


@pytest.mark.slow
def test_no_address_and_no_behaviour_is_out_of_bounds(tmp_path: Path) -> None:
    dnnl = build.onednn()
    program = str(tmp_path / "sanitized")
    sources = [str(source) for source in [DRIVER, *sorted(build.NATIVE.glob("*.cc"))]]
    sanitize = ["-fsanitize=address,undefined", "-fno-sanitize-recover=all", "-g", "-O1", "-std=c++17", "-pthread"]
    found = ["-o", program, str(dnnl), f"-Wl,-rpath,{dnnl.parent}"]
    subprocess.run([*build.find_compiler(), *sanitize, *sources, *found], check=True, timeout=1800)
    environment = {**os.environ, "OMP_NUM_THREADS": "3"}
    ended = subprocess.run([program], capture_output=True, text=True, timeout=1800, env=environment)
    assert ended.returncode == 0 and ended.stdout == "clean\n", ended.stderr
