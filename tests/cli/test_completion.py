"""Completion in bash, as the README sets it up."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from msaccel.files import ROOT

SET_UP = 'eval "$(python run.py -sc install=bash)"'


@pytest.mark.skipif(shutil.which("bash") is None, reason="bash is missing")
@pytest.mark.parametrize(
    ("typed", "offered"),
    [
        ("python run.py accel=cl", "accel=clip"),
        ("python run.py -m accel=clip accel.clip.m", "accel.clip.max_norm= accel.clip.mode="),
    ],
)
def test_options_and_keys_are_completed(typed: str, offered: str) -> None:
    assert SET_UP in (ROOT / "README.md").read_text()
    words = typed.split()
    tab = f"COMP_LINE='{typed}' COMP_POINT={len(typed)} COMP_WORDS=({typed}) COMP_CWORD={len(words) - 1}"
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    ended = subprocess.run(
        ["bash", "-c", f'{SET_UP}\n{tab}\nhydra_bash_completion\necho "${{COMPREPLY[@]}}"'],
        capture_output=True,
        text=True,
        timeout=400,
        cwd=ROOT,
        env={**os.environ, "PATH": path},
    )
    assert (ended.stdout, ended.stderr) == (f"{offered}\n", "")
