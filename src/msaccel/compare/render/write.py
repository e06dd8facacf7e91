"""A report as files, and as the artifacts of a summary run, beside the runs that it is about."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime, timezone
from pathlib import Path

from mlflow import MlflowClient
from mlflow.entities import RunInfo

from msaccel.compare.render import export, html, markdown, plots
from msaccel.compare.render.curves import curves, seeds_drawn
from msaccel.compare.report import Report, Section
from msaccel.errors import UserError
from msaccel.files import atomic_write_text
from msaccel.tracking import ui_links
from msaccel.tracking.credentials import is_server
from msaccel.tracking.status import COMPARISON, FINISHED, KIND
from msaccel.tracking.store import local_path, open_experiment

_PAGE = "report.html"
_FILES = ("report.md", "report.json", "report.csv", _PAGE)


def write(client: MlflowClient, report: Report, folder: Path) -> Path:
    """Writes report.md, .json, .csv and .html into the folder; returns the page.

    Raises:
        UserError: the folder cannot be written.
    """
    sections = [section for section in report.sections if section.comparisons] or report.sections
    seeds = seeds_drawn(sum(len(section.found.methods) for section in sections))
    drawn = {section: _drawn(client, section, seeds, f"set{place}") for place, section in enumerate(sections)}
    now = datetime.now(timezone.utc)
    made = f"{len(report.runs)} finished runs, read on {now:%Y-%m-%d at %H:%M} UTC."
    texts: Mapping[str, str] = {
        "report.md": markdown.document(report),
        "report.json": export.as_json(report),
        "report.csv": export.as_csv(report),
        _PAGE: html.page(report, drawn, seeds, made, client.tracking_uri),
    }
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, text in texts.items():
            atomic_write_text(folder / name, text, durable=False)
    except OSError as error:
        raise UserError(f"--output={folder} cannot be written ({error.strerror}); write another folder.") from error
    return folder / _PAGE


def store(client: MlflowClient, report: Report, folder: Path, tracking_uri: str, name: str) -> str:
    """Keeps the report, and nothing else in the folder, as artifacts of a summary run; returns its page's place.

    That is a path where the store is on this machine, else an address of the server's UI.
    """
    artifacts = None if is_server(tracking_uri) else _artifacts(client, report)
    experiment_id = open_experiment(client, ui_links.COMPARISONS, artifacts).experiment_id
    tags = {KIND: COMPARISON, "mlflow.source.name": "python -m msaccel compare", "mlflow.source.type": "LOCAL"}
    info = client.create_run(experiment_id, run_name=name, tags=tags).info
    client.log_metric(info.run_id, "runs", len(report.runs))
    return keep(client, info, [folder / name for name in _FILES], tracking_uri)


def keep(client: MlflowClient, info: RunInfo, files: Iterable[Path], tracking_uri: str) -> str:
    """Keeps files, one of which is the page, as artifacts of a run, which ends with them; returns the page's place."""
    for file in files:
        client.log_artifact(info.run_id, str(file))
    client.set_terminated(info.run_id, FINISHED)
    if here := local_path(info.artifact_uri):
        return str(here / _PAGE)
    return f"{ui_links.run(ui_links.server_of(tracking_uri), info.experiment_id, info.run_id)}/artifacts"


def _artifacts(client: MlflowClient, report: Report) -> str | None:
    """The folder that holds the artifacts of the experiment compared; None: MLflow's default."""
    run = client.get_run(report.runs[0].run_id)
    kept = local_path(client.get_experiment(run.info.experiment_id).artifact_location)
    return str(kept.parent) if kept else None


def _drawn(client: MlflowClient, section: Section, seeds: int, prefix: str) -> dict[str, str]:
    methods = section.found.methods
    return plots.draw(methods, curves(client, methods, seeds), section.rates, prefix)
