"""The results of a study in its card: Markdown tables made from MLflow, never typed."""

from __future__ import annotations

from pathlib import Path

from mlflow import MlflowClient

from msaccel.compare.fairness import short
from msaccel.compare.render.markdown import escape, tables
from msaccel.compare.report import Report
from msaccel.compare.runs import Record
from msaccel.errors import UserError, printable

BEGIN, END = "<!-- results -->", "<!-- /results -->"


def text(client: MlflowClient, report: Report) -> str:
    """What stands between a card's markers: methods, differences with interval and verdict, reservations, origin."""
    return f"{tables(report)}\n\n{provenance(client, report.runs)}"


def provenance(client: MlflowClient, runs: list[Record]) -> str:
    """Commits, machine and the minutes in which a run was under way, behind the numbers."""
    commits = sorted({run.tags.get("git_commit", "unknown") for run in runs})
    minutes, until = 0.0, 0
    for started, end_time in sorted((run.started, run.end_time or run.started) for run in runs):
        minutes += max(0, end_time - max(started, until)) / 60_000
        until = max(until, end_time)
    path = client.download_artifacts(runs[0].run_id, "environment.txt")
    machine, *packages = Path(path).read_text().splitlines()
    versions = [package for package in packages if package.startswith(("mindspore==", "numpy=="))]
    code = ", ".join(map(short, commits))
    origin = printable(f"commit {code}; {machine.lstrip('# ')}; {', '.join(versions)}")
    return f"{len(runs)} runs, {minutes:.0f} minutes; {escape(origin)}."


def write_into(path: Path, text: str) -> None:
    """Puts the text between the two markers of a card.

    Raises:
        UserError: the file is missing or has no markers.
    """
    content = path.read_text() if path.exists() else ""
    before, begin, rest = content.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not (begin and end):
        raise UserError(f"{path} has no lines {BEGIN} and {END}; write both where --into shall put the table.")
    path.write_text(f"{before}{begin}\n{text}\n{end}{after}")
