"""The loops give the same bits with the instructions of every generation of processors."""

import os
import subprocess
import sys
from pathlib import Path

import pytest


@pytest.mark.slow
def test_every_generation_of_loops_has_the_same_bits() -> None:
    """Those of this processor and all older ones: the baseline, AVX2 and AVX-512."""
    script = str(Path(__file__).with_name("generations.py"))
    digests = set()
    for generation in "012":
        environment = {**os.environ, "MSACCEL_LOOPS": generation, "PYTHONPATH": os.pathsep.join(sys.path)}
        digests.add(subprocess.check_output([sys.executable, script], env=environment, timeout=500))
    assert len(digests) == 1
