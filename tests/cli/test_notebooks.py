"""The notebooks run from top to bottom, and are kept without what they printed."""

from __future__ import annotations

import os
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

from msaccel.files import ROOT

NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))


def test_one_for_each_question() -> None:
    assert len(NOTEBOOKS) == 4


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_outputs_are_stripped(path: Path) -> None:
    for cell in nbformat.read(path, as_version=4).cells:
        if cell.cell_type == "code":
            assert cell.outputs == [] and cell.execution_count is None


@pytest.mark.slow
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_it_runs_and_leaves_nothing(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SMALL", "1")
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    before = {folder: set(os.listdir(folder)) for folder in (path.parent, ROOT / "mlruns")}
    monkeypatch.setenv("PYTHONPATH", f"{ROOT}/src", prepend=os.pathsep)
    notebook = nbformat.read(path, as_version=4)
    NotebookClient(notebook, timeout=300, resources={"metadata": {"path": str(path.parent)}}).execute()
    drawn = [
        output for cell in notebook.cells for output in cell.get("outputs", []) if "image/png" in output.get("data", {})
    ]
    assert drawn, "a notebook shows something"
    assert before == {folder: set(os.listdir(folder)) for folder in before}
    assert not list(tmp_path.glob("msaccel-*"))
