"""The results of a study in its card: Markdown tables made from MLflow, never typed."""

from __future__ import annotations

import os
from pathlib import Path

from mlflow import MlflowClient
from mlflow.exceptions import MlflowException

from msaccel.compare.render.markdown import escape, tables
from msaccel.compare.report import Report
from msaccel.compare.runs import Record, short
from msaccel.errors import UserError, printable
from msaccel.files import atomic_write_text, open_regular

RESULTS = "results"


def text(client: MlflowClient, report: Report) -> str:
    """The text between a card's markers: methods, differences with interval and verdict, reservations, origin."""
    return f"{tables(report)}\n\n{provenance(client, report.runs)}"


def provenance(client: MlflowClient, runs: list[Record]) -> str:
    """The origin of the numbers: commits, processors, and the training time of all runs; of the latest run the system
    and the versions."""
    commits = sorted({run.tags.get("git_commit", "unknown") for run in runs})
    processors = sorted({run.tags.get("processor", "a processor that is not recorded") for run in runs})
    minutes = sum(run.metrics.get("time/train_s", 0.0) for run in runs) / 60
    latest = max(runs, key=lambda run: run.started)  # others may be in another store
    system, *packages = _environment(client, latest) or [""]
    versions = [package for package in packages if package.startswith(("mindspore==", "numpy=="))]
    code = ", ".join(map(short, commits))
    origin = [f"commit {code}", " and ".join(processors), system.lstrip("# "), ", ".join(versions)]
    return f"{len(runs)} runs, {minutes:.0f} minutes of training; {escape(printable('; '.join(filter(None, origin))))}."


def _environment(client: MlflowClient, run: Record) -> list[str]:
    """The lines of a run's `environment.txt`; none where somebody has removed it."""
    try:
        path = client.download_artifacts(run.run_id, "environment.txt")
        return Path(path).read_text(errors="replace").splitlines()
    except (MlflowException, OSError):
        return []


def markers(name: str) -> tuple[str, str]:
    """The lines that enclose the text of that name in a file."""
    return f"<!-- {name} -->", f"<!-- /{name} -->"


def write_into(path: Path, text: str, name: str = RESULTS) -> None:
    """Puts the text between the two markers of that name.

    Raises:
        UserError: the file is missing or has no markers, or cannot be read or written.
    """
    begin, end = markers(name)
    unmarked = UserError(f"{path} has no lines {begin} and {end}; write both where the results should go.")
    real = Path(os.path.realpath(path))
    try:
        with open_regular(real) as file:
            content = file.read().decode()
        before, begins, rest = content.partition(begin)
        _, ends, after = rest.partition(end)
        if not (begins and ends):
            raise unmarked
        atomic_write_text(real, f"{before}{begin}\n{text}\n{end}{after}")
    except FileNotFoundError:
        raise unmarked from None
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "no text"
        raise UserError(f"{path} cannot be updated ({reason}); results are written into a Markdown file.") from error
