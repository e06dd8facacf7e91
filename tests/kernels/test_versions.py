"""The wheel of the operators in an empty environment with each MindSpore that it serves."""

import os
import subprocess
import venv
from pathlib import Path

import pytest

from tests.kernels.test_wheel import build, example

pytestmark = [pytest.mark.soak, pytest.mark.timeout(3600)]

COMPARED = """
import mindspore
from msaccel.kernels import restore
inputs = Tensor(images[:4])
network.set_train(False)
ours = network(inputs).asnumpy()
restore(network)
theirs = network(inputs).asnumpy()
print(mindspore.__version__, np.abs(ours - theirs).max() / np.abs(theirs).max())
"""


@pytest.mark.parametrize("version", ["2.9.0", "2.10.0"])
def test_the_example_of_the_readme_trains_and_agrees_with_native_operators(version: str, tmp_path: Path) -> None:
    wheel = build(tmp_path / "copy")
    venv.create(tmp_path / "env", with_pip=True)
    python = tmp_path / "env/bin/python"
    subprocess.run([python, "-m", "pip", "-q", "install", wheel, f"mindspore=={version}", "mindcv"], check=True)
    env = {**os.environ, "PYTHONPATH": "", "XDG_CACHE_HOME": str(tmp_path / "cache")}
    done = subprocess.run([python, "-c", example() + COMPARED], env=env, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]
    assert "Replaced: 40 BatchNorm, 20 Conv2D, 1 MaxPool." in done.stdout
    found, difference = done.stdout.splitlines()[-1].split()
    assert found == version and float(difference) < 1e-5
