"""The notebooks run from top to bottom, and what they show was made by the code that stands there."""

from __future__ import annotations

import os
import re
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient
from traitlets.config import Config

from msaccel.files import ROOT
from tests.cli.notebooks import NOTEBOOKS, code

# What the first shows are also times, which mean something only on a machine with nothing else to do.
SHOWN = [path for path in NOTEBOOKS if not path.stem.startswith("1_")]


def test_one_for_each_question() -> None:
    assert len(NOTEBOOKS) == 4


@pytest.mark.parametrize("path", SHOWN, ids=lambda path: path.stem)
def test_what_it_shows_was_made_by_its_code(path: Path) -> None:
    notebook = nbformat.read(path, as_version=4)
    again = f"python -m tests.cli.notebooks {path.stem}"
    assert notebook.metadata.get("code_of_outputs") == code(notebook), f"the code has changed; run {again}"
    for cell in notebook.cells:
        if cell.cell_type == "code":
            shows = "plt.show()" in cell.source or re.search(r"^print", cell.source, re.M) is not None
            assert bool(cell.outputs) == shows
            assert all(output.output_type != "error" and output.get("name") != "stderr" for output in cell.outputs)


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_it_is_small_and_names_no_path_of_a_machine(path: Path) -> None:
    assert path.stat().st_size < 300_000
    texts = [
        text
        for cell in nbformat.read(path, as_version=4).cells
        for output in cell.get("outputs", [])
        for text in [output.get("text", ""), output.get("data", {}).get("text/plain", "")]
    ]
    assert not re.search(r"(^|[\s'\"(])/\w+/", "\n".join(texts))


@pytest.mark.slow
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_it_runs_and_leaves_nothing(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SMALL", "1")
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    before = {folder: set(os.listdir(folder)) for folder in (path.parent, ROOT / "mlruns")}
    monkeypatch.setenv("PYTHONPATH", f"{ROOT}/src", prepend=os.pathsep)
    notebook = nbformat.read(path, as_version=4)
    patient = Config(KernelManager={"shutdown_wait_time": 120})  # not 5 s: then a slow kernel is killed
    where = {"metadata": {"path": str(path.parent)}}
    NotebookClient(notebook, timeout=300, resources=where, config=patient).execute()
    drawn = [
        output for cell in notebook.cells for output in cell.get("outputs", []) if "image/png" in output.get("data", {})
    ]
    assert drawn, "a notebook shows something"
    assert before == {folder: set(os.listdir(folder)) for folder in before}
    assert not list(tmp_path.glob("msaccel-*"))
