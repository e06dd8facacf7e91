"""Each bad input gets one sentence or a documented skip, in bounded memory; together they are a page of the docs.

`MSACCEL_WRITE_TABLE=1 python -m pytest tests/inputs/test_table.py` writes the page anew.
"""

from __future__ import annotations

import os
import re
import resource
from pathlib import Path

import pytest

from msaccel.errors import UserError
from msaccel.files import ROOT

from . import data_rows, settings_rows, state_rows
from .row import Row, plain

PAGE = ROOT / "docs" / "bad-inputs.md"
BEGIN, END = "<!-- table -->\n", "<!-- /table -->"
GROUPS = {
    "Data": data_rows.ROWS,
    "Checkpoints, PCA matrices, saved configurations": state_rows.ROWS,
    "Settings, stores, rank tables": settings_rows.ROWS,
}
ROWS = [row for rows in GROUPS.values() for row in rows]
MEMORY = 600_000_000  # bytes by which one input may raise the process's peak, modules that it imports included


@pytest.fixture(scope="module")
def sentences() -> dict[str, str]:
    """The sentence of each row that has been tested, by the row's name."""
    return {}


@pytest.mark.usefixtures("graph_mode")
@pytest.mark.parametrize("row", ROWS, ids=[row.name for row in ROWS])
def test_one_sentence_or_a_documented_skip(
    row: Row, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sentences: dict[str, str]
) -> None:
    own = tmp_path / "own place"
    own.mkdir()
    monkeypatch.chdir(own)
    before = peak()
    try:
        said = row.act(own)
        assert said is not None and row.skipped, "it is used as if nothing were wrong"
    except UserError as error:
        assert not row.skipped
        said = str(error)
    assert peak() - before < MEMORY
    assert row.phrase in said
    sentences[row.name] = plain(said, own)
    assert re.fullmatch(r"[^\n]{10,480}", sentences[row.name]), "one line"
    assert os.listdir(tmp_path) == ["own place"], "nothing is written outside"
    assert not list(own.rglob("harm")), "nothing is executed"


def peak() -> int:
    """The largest resident memory of this process so far, in bytes."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def test_there_are_enough_and_each_is_named_once() -> None:
    assert len(ROWS) >= 40 and len({row.name for row in ROWS}) == len(ROWS)


def test_the_page_says_what_is_said(sentences: dict[str, str]) -> None:
    if len(sentences) < len(ROWS):
        pytest.skip("only with all rows")
    text = PAGE.read_text()
    begin, end = text.index(BEGIN) + len(BEGIN), text.index(END)
    if os.environ.get("MSACCEL_WRITE_TABLE"):
        PAGE.write_text(text[:begin] + table(sentences) + text[end:])
    else:
        assert text[begin:end] == table(sentences), "MSACCEL_WRITE_TABLE=1 writes it anew"


def table(sentences: dict[str, str]) -> str:
    """The rows of the page, with the sentence of each."""
    lines = []
    for title, rows in GROUPS.items():
        lines += [f"### {title}", "", "| input | where | what is said |", "|---|---|---|"]
        for row in rows:
            said = sentences[row.name].replace("|", "\\|").replace("<", "&lt;")
            lines.append(f"| {row.name} | {row.where} | {'(goes on) ' if row.skipped else ''}{said} |")
        lines.append("")
    return "\n".join(lines)
