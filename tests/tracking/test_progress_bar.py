"""What is shown of a job's progress fits its terminal, whatever the numbers; without a terminal it is a few lines."""

from __future__ import annotations

import fcntl
import io
import math
import os
import pty
import re
import struct
import subprocess
import termios
import threading
from contextlib import suppress
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from msaccel.tracking import progress_bar
from msaccel.tracking.progress_bar import LogPoint, ProgressBar, line, span
from tests.running import SMALL, Store

USUAL = LogPoint(
    stage=1,
    stages=1,
    epoch=2,
    epochs=3,
    update=1234,
    updates=5400,
    loss=0.1234,
    accuracy=0.971,
    samples_per_sec=21000.0,
    seconds_left=61.0,
)
WHOLE = st.integers(1, 10**12)
POINTS = st.builds(
    LogPoint,
    *[WHOLE] * 6,
    loss=st.floats(),
    accuracy=st.floats(0, 1),
    samples_per_sec=st.none() | st.floats(0, 1e15),
    seconds_left=st.none() | st.floats(0, 1e12),
)


def drawn(at: LogPoint, columns: int) -> str:
    """The bar in a terminal of that width."""
    console = Console(file=io.StringIO(), force_terminal=True, width=columns, color_system=None, legacy_windows=False)
    bar = ProgressBar("none-cpu-s0", silent=True)
    bar.show(at)
    console.print(bar, end="")
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


@given(POINTS, st.integers(1, 200))
def test_no_line_is_longer_than_the_terminal(at: LogPoint, columns: int) -> None:
    assert len(line(at, columns)) <= columns
    assert len(drawn(at, columns)) <= columns and "\n" not in drawn(at, columns)


def test_a_usual_job_shows_everything_in_80_columns() -> None:
    shown = drawn(USUAL, 80)
    assert shown == "epoch 2/3  1,234/5,400  loss 0.123  acc 97.1%  21,000/s  61 s left  ━━╸"
    in_stage_2 = "stage 2/2  epoch 2/3  1,234/5,400  loss 0.123  acc 97.1%  21,000/s  61 s left"
    assert drawn(replace(USUAL, stage=2, stages=2), 80) == in_stage_2


def test_words_are_written_out_where_there_is_room() -> None:
    long = "epoch 2/3  update 1,234/5,400  loss 0.123  accuracy 97.1%  21,000 samples/s  61 s left"
    assert line(USUAL, 120) == long
    assert drawn(USUAL, 200) == f"{long}  ━━━━━━╸"


def test_a_narrow_terminal_keeps_updates_time_left_and_loss_longest() -> None:
    assert line(USUAL, 40) == "1,234/5,400  loss 0.123  61 s left"
    assert line(USUAL, 24) == "1,234/5,400  61 s left"
    assert line(USUAL, 11) == "1,234/5,400"


def test_the_line_does_not_move_as_updates_gain_digits() -> None:
    assert len(line(replace(USUAL, update=7), 80)) == len(line(USUAL, 80))


def test_what_is_not_known_is_left_out() -> None:
    simulated = replace(USUAL, samples_per_sec=None, seconds_left=None, loss=math.nan)
    assert line(simulated, 80) == "epoch 2/3  update 1,234/5,400  loss nan  accuracy 97.1%"


def test_without_a_terminal_lines_come_until_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    lines: list[str] = []
    heard = threading.Event()

    def logged(form: str, *values: object) -> None:
        lines.append(form % values)
        heard.set()

    def next_line() -> str:
        heard.clear()
        assert heard.wait(60)
        return lines[-1]

    monkeypatch.setattr(progress_bar, "SECONDS", 0.001)
    monkeypatch.setattr(progress_bar._log, "info", logged)
    monkeypatch.setenv("COLUMNS", "80")
    with ProgressBar("none-cpu-s0") as bar:
        assert next_line() == "none-cpu-s0: starting"
        bar.show(USUAL)
        next_line()
        assert next_line().startswith("none-cpu-s0: epoch 2/3  1,234/5,400  loss 0.123  acc 97.1%  21,000/s  6")
        assert len(lines[-1]) <= 80
        bar.show(replace(USUAL, seconds_left=0.0))
        next_line()
        assert next_line().endswith("  0 s left")


def in_terminal(command: list[str], columns: int) -> str:
    """What a command writes to a terminal of that width, escape sequences included."""
    terminal, inside = pty.openpty()
    fcntl.ioctl(inside, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    environment = {key: value for key, value in os.environ.items() if key not in ("COLUMNS", "NO_COLOR")}
    job = subprocess.Popen(command, stdout=inside, stderr=inside, env={**environment, "TERM": "xterm-256color"})
    os.close(inside)
    output = b""
    with suppress(OSError):  # how the end of a terminal is told
        while part := os.read(terminal, 4096):
            output += part
    os.close(terminal)
    assert job.wait() == 0
    return output.decode()


def must_end_with_the_whole_bar(text: str, columns: int, name: str = "baseline") -> None:
    """Of a job of SMALL, no line of whose bar is broken."""
    text = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", text)
    bars = [one for one in re.split(r"[\r\n]+", text) if re.match(r"epoch \d/2  .*\d/22", one)]
    assert bars and max(map(len, bars)) <= columns
    assert bars[-1].startswith("epoch 2/2  22/22  loss ") and ("━" * 10 in bars[-1]) == (columns == 80)
    assert f"{name} s0: final accuracy " in text


@pytest.mark.slow
@pytest.mark.soak
def test_a_job_in_a_narrow_terminal_ends_with_the_whole_bar(store: Store) -> None:
    """tests/tracking/test_terminal_picture.py has one of 80 columns."""
    must_end_with_the_whole_bar(in_terminal(store.command(*SMALL, "model=mlp"), 60), 60)


def test_a_silent_one_says_nothing(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress_bar, "SECONDS", 0.0)
    before = threading.active_count()
    with ProgressBar("", silent=True) as bar:
        bar.show(USUAL)
        assert threading.active_count() == before
    assert capsys.readouterr() == ("", "")


@pytest.mark.parametrize(
    ("seconds", "said"),
    [(0.4, "0 s"), (-3, "0 s"), (89, "89 s"), (90, "2 min"), (3600, "60 min"), (11_100, "3 h 05 min"), (2e5, "2 days")],
)
def test_spans_are_read_at_a_glance(seconds: float, said: str) -> None:
    assert span(seconds) == said
