"""What the code never does, and what is pinned: read from the sources."""

from __future__ import annotations

import ast
import re
import sys
from pathlib import Path

import pytest

from msaccel.files import ROOT

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

SOURCES = [ROOT / "run.py", *sorted((ROOT / "src").rglob("*.py")), *sorted((ROOT / "benchmarks").glob("*.py"))]
UNPICKLING = {"pickle", "cPickle", "cloudpickle", "dill", "shelve", "marshal", "jsonpickle"}
CALLS = {
    "np.load", "numpy.load", "torch.load", "ms.load_checkpoint", "mindspore.load_checkpoint", "ms.load", "joblib.load",
    "yaml.load", "yaml.unsafe_load", "yaml.full_load", "eval", "exec", "os.system", "os.popen", "shutil.unpack_archive",
}  # fmt: skip
METHODS = {"extractall", "extract"}


def found(path: Path) -> list[str]:
    """What a file imports or calls that could execute what it reads, or write where an archive says."""
    names = []
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names += [alias.name for alias in node.names if alias.name.split(".")[0] in UNPICKLING]
        elif isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] in UNPICKLING:
            names.append(str(node.module))
        elif isinstance(node, ast.Call):
            name = ast.unparse(node.func)
            if name in CALLS or (isinstance(node.func, ast.Attribute) and node.func.attr in METHODS):
                names.append(name)
            names += ["shell=True"] * any(keyword.arg == "shell" for keyword in node.keywords)
            names += ["allow_pickle"] * any(keyword.arg == "allow_pickle" for keyword in node.keywords)
    return names


@pytest.mark.parametrize("path", SOURCES, ids=[str(path.relative_to(ROOT)) for path in SOURCES])
def test_nothing_is_unpickled_evaluated_or_extracted(path: Path) -> None:
    assert found(path) == []


def test_the_search_finds_what_it_looks_for(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("import pickle\nimport numpy as np\nnp.load('a', allow_pickle=True)\na.extractall()")
    assert found(tmp_path / "a.py") == ["pickle", "np.load", "allow_pickle", "a.extractall"]


def test_every_dependency_is_pinned() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    asked = [*project["dependencies"], *(name for names in project["optional-dependencies"].values() for name in names)]
    pinned = {
        line.split("==")[0]
        for line in (ROOT / "constraints.txt").read_text().splitlines()
        if re.match(r"[A-Za-z0-9._-]+==[^*\s]+", line)
    }
    names = {re.match(r"[A-Za-z0-9._-]+", wanted)[0].lower().replace("_", "-") for wanted in asked}  # type: ignore[index]
    assert names <= pinned, "give each a line in constraints.txt"
