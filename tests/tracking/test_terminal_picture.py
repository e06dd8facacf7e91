"""A job in a terminal of 80 columns, where there is a baseline to compare it with.

With MSACCEL_PICTURES it is the picture of the README: its baseline and accumulation, in the default store. The picture
goes to that folder:

    MSACCEL_PICTURES=docs/pictures python -m pytest tests/tracking/test_terminal_picture.py
"""

import io
import os
import re
import sys
from pathlib import Path

import pytest
from rich.console import Console
from rich.text import Text

from msaccel.files import ROOT
from tests.running import SMALL, Store
from tests.tracking.test_progress_bar import in_terminal, must_end_with_the_whole_bar

PICTURES = os.environ.get("MSACCEL_PICTURES")
COLUMNS = 80
ERASED = "\x1b[2K"


def left_standing(output: str) -> str:
    """What a terminal shows in the end: of each line what follows the last time that it was erased."""
    return "\n".join(line.split(ERASED)[-1] for line in output.split("\r\n"))


@pytest.mark.slow
def test_a_job_ends_with_its_difference_to_the_baseline(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    picture = Path(PICTURES or tmp_path).absolute() / "terminal.svg"
    monkeypatch.chdir(ROOT)
    console = Console(file=io.StringIO(), record=True, width=COLUMNS)
    if not PICTURES:
        baseline = store.run(*SMALL, "model=mlp")
        assert baseline.returncode == 0, baseline.stderr
    for typed in ("accel=none", "accel=accum") if PICTURES else ("accel=clip",):
        command = [sys.executable, "run.py", typed] if PICTURES else store.command(*SMALL, "model=mlp", typed)
        console.print(Text.assemble("$ ", (f"python run.py {typed}", "bold")))
        output = in_terminal(command, COLUMNS)
        if not PICTURES:
            must_end_with_the_whole_bar(output, COLUMNS, "clip")
        console.print(Text.from_ansi(left_standing(output)))
    console.save_svg(str(picture), title="python run.py", unique_id="terminal")
    said = re.sub(r"&#160;|\s+", " ", picture.read_text())
    assert "accuracy" in said and "points against the baseline" in said and "\x1b" not in said
