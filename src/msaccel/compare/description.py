"""The description of a run on its page: its result, its difference from the baselines there are, and its command."""

from __future__ import annotations

import shlex
from collections.abc import Iterable

from mlflow import MlflowClient

from msaccel.compare.measures import BEST, FINAL, SECONDS, THROUGHPUT
from msaccel.compare.runs import Record, record
from msaccel.tracking.credentials import scrubbed
from msaccel.tracking.ui_view import DESCRIPTION

_LONGEST = 5000  # characters that every version of MLflow takes as the value of a tag


def describe(client: MlflowClient, run_id: str, note: str, overrides: Iterable[str], beside: str) -> None:
    """Writes the description of a finished run, unless somebody has written one meanwhile.

    Args:
        note: the user's own, which the run has already; the description begins with it.
        overrides: as typed.
        beside: how the run compares with its baseline, as `msaccel.compare.beside_baseline` says it.
    """
    run = client.get_run(run_id)
    if run.data.tags.get(DESCRIPTION, note) != note:
        return
    parts = [note, _result(record(run)), _paragraphs(beside), _command(overrides)]
    text = "\n\n".join(filter(None, parts))
    client.set_tag(run_id, DESCRIPTION, text if len(text) <= _LONGEST else "\n\n".join(filter(None, parts[:-1])))


def _result(own: Record) -> str:
    shown = {FINAL: "final accuracy {}", BEST: "best accuracy {}"}
    if not own.simulated:
        shown |= {SECONDS: "{} s of training", THROUGHPUT: "{} samples/s"}
    known = {measure: measure.read(own) for measure in shown}
    numbers = {measure: measure.number_format.format(value) for measure, value in known.items() if value is not None}
    return f"**{', '.join(shown[measure].format(number) for measure, number in numbers.items())}**"


def _paragraphs(lines: str) -> str:
    """The lines as Markdown: a paragraph for each, and indented ones as code."""
    return "\n\n".join(f"    {line.strip()}" if line.startswith(" ") else line for line in lines.splitlines())


def _command(overrides: Iterable[str]) -> str:
    typed = [scrubbed(text) for text in overrides if not text.startswith("sweep.resume=")]
    return f"```\n{shlex.join(['python', 'run.py', *typed])}\n```"
