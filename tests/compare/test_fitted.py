"""No line is wider than the terminal and no word is broken, whatever is compared or listed."""

from __future__ import annotations

import io
import re
import shlex
from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len
from rich.console import Console

from msaccel.cli.commands import status
from msaccel.compare.render import terminal
from msaccel.compare.render.fitted import show_rows, wrapped
from msaccel.errors import printable
from msaccel.sweeps.status import RunStatus
from tests.compare.conftest import Planted

WIDTHS = st.integers(60, 200)
WORD = st.text("abcdefgh-=.,/:±×é漢", min_size=1, max_size=25)
TEXT = st.lists(WORD, min_size=1, max_size=30).map(" ".join)
CELLS = st.lists(st.lists(WORD, min_size=1, max_size=3).map(" ".join), min_size=4, max_size=4)
ONE = RunStatus(
    name="accum-cpu-s0",
    run_id="a" * 32,
    experiment="lenet-mnist",
    status="DEAD",
    started=0.0,
    ended=None,
    heard=0.0,
    update=1234,
    updates=5400,
    samples_per_sec=21000.0,
    seconds_left=61.0,
    accuracy=0.98,
    sweep_id="",
    go_on=f"python run.py resume={'a' * 32}",
)


def printed(columns: int, title: str, heads: Sequence[str], rows: list[tuple[str, list[str]]]) -> list[str]:
    console = Console(file=io.StringIO(), width=columns, markup=False, emoji=False)
    show_rows(console, title, heads, rows)
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue().splitlines()


@given(TEXT, WIDTHS)
def test_text_is_broken_between_words(text: str, columns: int) -> None:
    lines = wrapped(text, columns, "  - ", "    ")
    assert max(map(cell_len, lines)) <= columns
    assert " ".join(lines).removeprefix("  - ").split() == text.split()


@given(TEXT, st.lists(WORD | st.sampled_from(["it is mine", "it's  mine", 'a "b" c']), max_size=20), WIDTHS)
def test_a_command_can_be_copied(text: str, arguments: list[str], columns: int) -> None:
    words = ["python", "run.py", *arguments, "seed=0,1"]
    lines = wrapped(f"{text}; train it: {shlex.join(words)}", columns)
    assert max(map(cell_len, lines)) <= columns
    first = next(number for number, line in enumerate(lines) if " python" in f" {line}")
    read = "\n".join(lines[first:]).replace("\\\n", "")  # as the shell reads it
    assert shlex.split(read[read.index("python") :]) == words


@given(TEXT, st.lists(CELLS, min_size=1, max_size=5), WIDTHS)
def test_rows_are_a_table_or_blocks(title: str, cells: list[list[str]], columns: int) -> None:
    heads = ["run", "accuracy", "samples/s", "took"]
    lines = printed(columns, title, heads, [(row[0], row) for row in cells])
    assert max(map(cell_len, lines)) <= columns
    shown = re.sub(r"[\s;]+", " ", " ".join(lines))
    for row in cells:
        for cell in row:
            assert all(f" {word} " in f" {shown} " for word in cell.split()), "whole words"


def test_a_narrow_terminal_has_blocks_and_a_wide_one_a_table() -> None:
    heads = ["run", "experiment", "accuracy", "ended"]
    rows = [("none-cpu-s0", ["none-cpu-s0", "an-experiment-with-a-long-name", "98.00%", "3 min ago"])]
    assert printed(60, "ended", heads, rows) == [
        "ended",
        "  none-cpu-s0",
        "    experiment an-experiment-with-a-long-name;",
        "    accuracy 98.00%; ended 3 min ago",
        "",
    ]
    wide = [line.split() for line in printed(80, "ended", heads, rows) if line.strip()]
    assert wide[1] == heads and wide[-1] == ["none-cpu-s0", rows[0][1][1], "98.00%", "3", "min", "ago"]


def test_a_word_longer_than_a_line_is_the_only_one_that_is_broken() -> None:
    assert wrapped("a " + "b" * 100, 60) == ["a " + "b" * 58, "  " + "b" * 42]


@pytest.mark.parametrize("columns", [60, 80, 120, 200])
def test_a_report_fits(
    columns: int, plausible: Callable[..., Planted], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    terminal.show(plausible().report())
    said = capsys.readouterr().out
    assert max(map(len, said.splitlines())) <= columns
    for words in ("same micro-batch", "same global batch", "not finished, never averaged: 1 FAILED"):
        assert words in re.sub(r"\s+", " ", said)


@given(WIDTHS, st.text(max_size=80).map(printable), st.floats(0, 1e12))
def test_status_fits(columns: int, name: str, number: float) -> None:
    one = replace(ONE, name=name, experiment=name, samples_per_sec=number, seconds_left=number)
    with pytest.MonkeyPatch.context() as patch:
        output = io.StringIO()
        patch.setenv("COLUMNS", str(columns))
        patch.setattr("sys.stdout", output)
        status.show([one], [one], [one])
    lines = output.getvalue().splitlines()
    assert max(map(cell_len, lines)) <= columns
    assert sum(one.run_id in line for line in lines) == 6, "in each list, and in the command below it"
