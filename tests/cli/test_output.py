"""What a command does when nobody takes its output any more."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.running import ROOT

COMMANDS = {
    "a command": ["-m", "msaccel", "doctor"],
    "the help": ["run.py", "--help"],
    "a configuration": ["run.py", "--cfg", "job"],
}


@pytest.mark.parametrize("name", COMMANDS)
def test_a_reader_that_leaves_hears_no_complaint(name: str) -> None:
    with subprocess.Popen(["true"], stdin=subprocess.PIPE) as reader:
        reader.wait()
        ended = subprocess.run(
            [sys.executable, *COMMANDS[name]], stdout=reader.stdin, stderr=subprocess.PIPE, text=True, cwd=ROOT
        )
    assert (ended.returncode, ended.stderr) == (1, "")


@pytest.mark.parametrize("folder, said", {"a file": "File exists", "a file/of": "Not a directory"}.items())
def test_a_file_in_the_way_is_one_sentence(folder: str, said: str, tmp_path: Path) -> None:
    (tmp_path / "a file").touch()
    command = [sys.executable, ROOT / "run.py", f"hydra.run.dir='{folder}'"]
    ended = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path)
    sentence = f"{folder} could not be written or read ({said}); write another path, or move what is there.\n"
    assert (ended.returncode, ended.stderr) == (2, sentence)


@pytest.mark.parametrize("name", COMMANDS)
def test_a_full_disk_is_one_sentence(name: str) -> None:
    with open("/dev/full", "w") as full:
        ended = subprocess.run(
            [sys.executable, *COMMANDS[name]], stdout=full, stderr=subprocess.PIPE, text=True, cwd=ROOT
        )
    assert ended.returncode == 1
    assert ended.stderr == "a file could not be written or read (No space left on device); make room or allow it.\n"
