"""Runs the notebooks and keeps what they show: `python -m tests.cli.notebooks [NAME...]`, each of some minutes."""

from __future__ import annotations

import hashlib
import sys
from pathlib import Path

import nbformat
from nbclient import NotebookClient
from nbformat import NotebookNode

from msaccel.files import ROOT

NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))


def code(notebook: NotebookNode) -> str:
    """The digest of all code, kept beside the outputs of its last run."""
    sources = [cell.source for cell in notebook.cells if cell.cell_type == "code"]
    return hashlib.sha256("\n\n".join(sources).encode()).hexdigest()


def run(path: Path) -> NotebookNode:
    notebook = nbformat.read(path, as_version=4)
    where = {"metadata": {"path": str(path.parent)}}
    NotebookClient(notebook, timeout=3600, resources=where, record_timing=False).execute()
    for cell in notebook.cells:
        if cell.cell_type == "code":  # warnings of packages name paths of this machine
            cell.outputs = [output for output in cell.outputs if output.get("name") != "stderr"]
    notebook.metadata.language_info = {"name": "python"}  # without the versions of this machine
    notebook.metadata.code_of_outputs = code(notebook)
    return notebook


if __name__ == "__main__":
    for path in NOTEBOOKS:
        if path.stem in (sys.argv[1:] or [path.stem]):
            nbformat.write(run(path), path)
