"""The wheel of the operators alone: it is built and installed, and its README's example trains a network of MindCV."""

import os
import re
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

pytestmark = pytest.mark.slow


PIP = [sys.executable, "-m", "pip", "--disable-pip-version-check", "-q"]


def build(copy: Path) -> Path:
    """Builds the wheel from a copy, because a build writes into its sources."""
    shutil.copytree(ROOT / "packaging", copy / "packaging")
    shutil.copytree(ROOT / "src/msaccel/kernels", copy / "src/msaccel/kernels")
    subprocess.run([*PIP, "wheel", "--no-deps", "-w", copy, copy / "packaging/kernels"], check=True, timeout=300)
    (wheel,) = copy.glob("*.whl")
    return wheel


def example() -> str:
    """That of its README."""
    (found,) = re.findall(r"```python\n(.*?)```", (ROOT / "packaging/kernels/README.md").read_text(), re.DOTALL)
    return str(found)


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the wheel's content."""
    wheel, target = build(tmp_path_factory.mktemp("copy")), tmp_path_factory.mktemp("installed")
    subprocess.run([*PIP, "install", "--no-deps", "--target", target, wheel], check=True, timeout=300)
    return target


def test_example_of_the_readme_runs_without_the_rest_of_msaccel(installed: Path, tmp_path: Path) -> None:
    checks = "import msaccel, sys\nprint(list(msaccel.__path__), 'hydra' in sys.modules, 'mlflow' in sys.modules)\n"
    # Without `site` the environment's link to this checkout is not followed.
    path = os.pathsep.join([str(installed), sysconfig.get_path("purelib")])
    done = subprocess.run(
        [sys.executable, "-S", "-c", example() + checks],
        env={**os.environ, "PYTHONPATH": path},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    lines = done.stdout.splitlines()
    said = re.findall(r"^# (.*)$", example(), re.MULTILINE)
    first = lines.index(said[0])
    assert len(said) == 3 and lines[first : first + 3] == said
    assert lines[-1] == f"{[str(installed / 'msaccel')]} False False"


def test_sources_that_are_compiled_are_in_the_wheel(installed: Path) -> None:
    found = {path.name for path in (installed / "msaccel/kernels/native").iterdir()}
    assert {path.name for path in (ROOT / "src/msaccel/kernels/native").iterdir()} <= found
