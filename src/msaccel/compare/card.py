"""The results of a study in its card: a Markdown table made from MLflow, never typed."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from mlflow import MlflowClient

from msaccel.compare.collect import Group
from msaccel.compare.summary import COLUMNS, remarks
from msaccel.errors import UserError

BEGIN, END = "<!-- results -->", "<!-- /results -->"


def markdown(groups: Sequence[Group]) -> str:
    """A row for each group: its settings, n, and mean ± standard deviation of each metric; then what limits it."""
    heads = [*groups[0].settings, "n", *(heading for _, heading, _, _ in COLUMNS)]
    rows = [heads, ["---"] * len(heads)]
    for group in groups:
        numbers = [sum_up(group.metric(metric), shown) for metric, _, shown, sum_up in COLUMNS]
        rows.append([*(value or "–" for value in group.settings.values()), str(len(group.runs)), *numbers])
    lines = [f"| {' | '.join(row)} |" for row in rows]
    return "\n".join([*lines, "", *(f"- {remark}" for remark in remarks(groups))])


def provenance(client: MlflowClient, groups: Sequence[Group]) -> str:
    """Commits, machine and minutes behind the numbers."""
    runs = [run for group in groups for run in group.runs]
    commits = sorted({run.data.tags.get("git_commit", "unknown") for run in runs})
    minutes = sum(run.info.end_time - run.info.start_time for run in runs) / 60_000
    path = client.download_artifacts(runs[0].info.run_id, "environment.txt")
    machine, *packages = Path(path).read_text().splitlines()
    versions = [package for package in packages if package.startswith(("mindspore==", "numpy=="))]
    short = ", ".join(commit[:12] + ("-dirty" if commit.endswith("-dirty") else "") for commit in commits)
    return f"{len(runs)} runs, {minutes:.0f} minutes; commit {short}; {machine.lstrip('# ')}; {', '.join(versions)}."


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
