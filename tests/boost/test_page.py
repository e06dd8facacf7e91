"""`docs/boost.md` says what the tests show: of the same version, with the same verdicts, in MindSpore's words."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import mindspore
from mindspore.boost import boost
from mindspore.train import model

from msaccel.files import ROOT

PAGE = (ROOT / "docs" / "boost.md").read_text()
ROWS = [row.strip("| ").split(" | ") for row in PAGE.splitlines() if re.search(r"\| `test_\w+`", row)]
AGREES, CONTRADICTS = "–", "yes"  # also where the documentation says nothing


def verdicts() -> Iterator[tuple[str, str]]:
    """Each test of this folder, but for those below, with its verdict, which its docstring decides."""
    for path in Path(__file__).parent.glob("test_*.py"):
        for node in ast.parse(path.read_text()).body:
            if path != Path(__file__) and isinstance(node, ast.FunctionDef) and node.name.startswith("test_"):
                against = (ast.get_docstring(node) or "").startswith("Against the documentation: ")
                yield node.name, CONTRADICTS if against else AGREES


def test_every_row_has_its_test_and_verdict() -> None:
    rows = [(cell.strip("`"), row[i - 1]) for row in ROWS for i, cell in enumerate(row) if cell.startswith("`test_")]
    assert sorted(rows) == sorted(verdicts())
    assert {verdict for _, verdict in rows} == {AGREES, CONTRADICTS}


def test_version() -> None:
    assert re.findall(r"MindSpore (\d[\d.]+\d)", PAGE) == [mindspore.__version__]


def test_every_level_key_and_mode_has_a_row() -> None:
    named = {word for row in ROWS for word in re.findall(r"`(\w+)`", row[0])}
    levels = boost._boost_config_level
    assert named >= {*levels, *levels["O0"], *boost._boost_config_mode} - {"O0"}


def test_quotations_are_literal() -> None:
    sources = [*Path(boost.__file__).parent.glob("*.py"), Path(model.__file__)]
    documented = " ".join(" ".join(path.read_text() for path in sources).split())
    quoted = [quote for row in ROWS for cell in row for quote in re.findall(r'^"(.+?)"(?: |$)', cell)]
    assert len(quoted) >= 15
    assert [quote for quote in quoted if quote not in documented] == []
