"""The package stands alone: importing it imports neither MindSpore nor anything else of msaccel."""

import ast
import subprocess
import sys

import pytest

from msaccel import kernels
from msaccel.config.compose import from_overrides
from msaccel.errors import UserError
from msaccel.kernels import build
from msaccel.training.builder import build_network

IMPORTED = (
    "import sys, msaccel.kernels; print(*(name for name in sys.modules if name.startswith(('msaccel', 'mindspore'))))"
)


def test_importing_it_imports_nothing_else() -> None:
    names = subprocess.check_output([sys.executable, "-c", IMPORTED], text=True).split()
    of_kernels = ["msaccel.kernels" + name for name in ("", ".backend", ".build", ".processor", ".signal_stack")]
    assert set(names) == {"msaccel", *of_kernels}


def test_no_module_of_it_imports_the_rest_of_msaccel() -> None:
    for source in build.NATIVE.parent.glob("*.py"):
        nodes = list(ast.walk(ast.parse(source.read_text())))
        names = [alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names]
        names += [node.module or "" for node in nodes if isinstance(node, ast.ImportFrom)]
        ours = [name for name in names if name.split(".")[0] == "msaccel"]
        assert all(name.startswith("msaccel.kernels") for name in ours), source.name


def test_the_digest_is_of_the_sources_and_not_of_the_readme() -> None:
    """A tag of a run names what computed it."""
    assert (build.NATIVE / "README.md").exists()
    sources = {path.suffix for path in build.NATIVE.iterdir() if path.name != "README.md"}
    assert sources == {".cc", ".h"}


def test_a_backend_that_is_not_available_is_the_users_error_where_a_network_is_built(monkeypatch) -> None:
    def unavailable() -> None:
        raise build.UnavailableError("no compiler; install one.")

    monkeypatch.setattr(build, "library", unavailable)
    before = kernels.current_backend()
    with pytest.raises(
        UserError, match=r"^kernels\.use=onednn: no compiler; install one\. Or write kernels\.use=auto\.$"
    ):
        build_network(from_overrides(["kernels.use=onednn"]))
    assert kernels.current_backend() is before
