"""The table in the README and the sentences for a colleague are what the published runs say, to the letter."""

from __future__ import annotations

from pathlib import Path

import pytest

from msaccel.__main__ import main

ROOT = Path(__file__).parents[2]


@pytest.mark.slow
def test_the_published_runs_give_the_published_answers(tmp_path: Path) -> None:
    written = ("README.md", "docs/answer.md")
    (tmp_path / "docs").mkdir()
    for name in written:
        (tmp_path / name).write_text((ROOT / name).read_text())
    store = f"sqlite:///{tmp_path}/mlflow.db"
    readme = str(tmp_path / "README.md")
    assert main(["study", "all", "--no-training", "--into", readme, "--tracking-uri", store]) == 0
    for name in written:
        assert (tmp_path / name).read_text() == (ROOT / name).read_text()
