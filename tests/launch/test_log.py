"""Messages reach the stream and the processes that they are meant for."""

from __future__ import annotations

import logging
import os
import re
import subprocess
import sys
from itertools import takewhile
from pathlib import Path

import pytest

from msaccel.kernels import build
from msaccel.launch import log
from tests.running import SMALL, Store

# What a job of SMALL says, up to the first colon of each line.
NAME = "baseline s0"
DEFAULT = [*[NAME] * 7, "  http", NAME]
SAYS = """
import logging, sys
from msaccel.launch import log
log.set_up(int(sys.argv[1]))
logging.getLogger().addHandler(logging.StreamHandler())
for level in ("debug", "info", "warning", "error"):
    getattr(logging.getLogger("msaccel.module"), level)("%s 100%%", level)
"""


@pytest.mark.parametrize(
    ("rank", "debug", "out", "err"),
    [
        (0, "", ["info"], ["warning", "error"]),
        (1, "", [], ["warning", "error"]),
        (0, "1", ["info"], ["debug", "warning", "error"]),
        (1, "1", ["info"], ["debug", "warning", "error"]),
    ],
)
def test_each_level_goes_to_its_stream_once_and_plainly(rank: int, debug: str, out: list[str], err: list[str]) -> None:
    command = [sys.executable, "-c", SAYS, str(rank)]
    said = subprocess.run(command, capture_output=True, text=True, env={**os.environ, log.DEBUG_VARIABLE: debug})
    assert said.stdout.splitlines() == [f"{level} 100%" for level in out]
    assert said.stderr.splitlines() == [f"{level} 100%" for level in err]


@pytest.mark.parametrize(
    ("verbose", "wanted"),
    [
        (False, False), (True, True), ("msaccel", True), ("hydra", False), (["hydra", "msaccel"], True), ([], False),
    ],
)  # fmt: skip
def test_what_hydra_verbose_asks_for(verbose: bool | str | list[str], wanted: bool) -> None:
    assert log.wants_debug(verbose) is wanted


def test_started_processes_log_at_the_level_of_their_launcher() -> None:
    assert log.for_workers() == {}
    log.set_up(debug=True)
    assert log.for_workers() == {log.DEBUG_VARIABLE: "1"}


@pytest.mark.parametrize("stream", ["stdout", "stderr"])
def test_a_reader_that_has_left_costs_no_traceback(stream: str) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    other = "stderr" if stream == "stdout" else "stdout"
    with os.fdopen(writer, "w") as closed:
        streams = {stream: closed, other: subprocess.PIPE}
        said = subprocess.run([sys.executable, "-c", SAYS, "0"], text=True, **streams)
    lines = (said.stderr if stream == "stdout" else said.stdout).splitlines()
    levels = ["warning", "error"] if stream == "stdout" else ["info"]
    assert [line for line in lines if "BrokenPipe" not in line] == [f"{level} 100%" for level in levels]
    assert "Traceback" not in "".join(lines)


def test_setting_up_again_repeats_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    log.set_up()
    log.set_up()
    logging.getLogger("msaccel.module").info("once")
    assert capsys.readouterr().out == "once\n"


def test_the_first_line_comes_before_the_heavy_imports(store: Store) -> None:
    python, *command = store.command(*SMALL, "model=mlp")
    job = subprocess.Popen(
        [python, "-X", "importtime", *command], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    with job:
        assert job.stdout
        said = list(takewhile(lambda line: "once MindSpore has started" not in line, job.stdout))
        job.terminate()
    imported = {line.split("|")[-1].strip() for line in said}
    assert "msaccel.launch.launcher" in imported
    assert not imported & {"mindspore", "mlflow", "matplotlib", "scipy"}


def test_messages_are_kept_with_their_times_after_those_of_an_earlier_start(tmp_path: Path) -> None:
    (tmp_path / log.FILE).write_text("an earlier start\n")
    log.keep_in(tmp_path)
    logging.getLogger("msaccel.module").warning("100%% \x1b[31m")
    logging.getLogger("msaccel.module").debug("not asked for")
    earlier, line = (tmp_path / log.FILE).read_text().splitlines()
    assert earlier == "an earlier start" and re.fullmatch(r"\S+ \S+,\d{3} WARNING 100%% \\x1b\[31m", line)


def test_a_full_disk_costs_the_file_alone(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / log.FILE).symlink_to("/dev/full")
    log.keep_in(tmp_path)
    logging.getLogger("msaccel.module").info("goes on")
    assert capsys.readouterr() == ("goes on\n", "")


@pytest.mark.slow
def test_verbose_shows_how_a_job_is_started_and_a_default_run_does_not(store: Store) -> None:
    default = store.run(*SMALL)
    assert (default.returncode, default.stderr) == (0, "")
    assert [line.split(":")[0] for line in default.stdout.splitlines()] == DEFAULT
    kernels = f"onednn-{build.source_digest()[:8]}"
    assert f"convolutions by oneDNN ({kernels})" in default.stdout
    (run,) = store.runs()
    assert run.data.tags["kernels"] == kernels and run.data.params["kernels.use"] == "auto"
    verbose = store.run_alone(*SMALL, "hydra.verbose=true")
    assert verbose.returncode == 0, verbose.stderr
    assert [line.split(":")[0] for line in verbose.stdout.splitlines()] == DEFAULT
    environment, started, works = verbose.stderr.splitlines()
    assert environment == "rank 0: environment {}"
    process = re.fullmatch(r"rank 0: process (\d+): .* -m msaccel.training.worker .*", started)
    assert process and works == f"rank 0: works in process {process[1]}", "the worker has the level of its launcher"
