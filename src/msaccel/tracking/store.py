"""Opening MLflow's store: made once, even when several jobs start together."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote, urlparse

from mlflow import MlflowClient
from mlflow.entities import Experiment, Run
from mlflow.exceptions import MlflowException
from mlflow.store.entities import PagedList
from sqlalchemy import URL
from sqlalchemy.exc import SQLAlchemyError

from msaccel.errors import UserError, on_one_line, printable
from msaccel.files import locked
from msaccel.tracking.credentials import SQLITE, complete, sqlite_file, without_password
from msaccel.tracking.retry import call_with_retries, quiet_mlflow, reason

_MAX_NAMES = 20  # of experiments, in an error; the newest


def connect(uri: str) -> MlflowClient:
    """A client on the store, without asking whether the store is there."""
    quiet_mlflow()
    return MlflowClient(tracking_uri=address(uri))


def address(uri: str) -> str:
    """The address as MLflow needs it: with its password; a SQLite file whose path has characters with a meaning in
    addresses in SQLite's own notation, in which SQLAlchemy decodes nothing (otherwise 2.1 decodes ``%20``, 2.0 not)."""
    database = sqlite_file(uri)
    if database is None or not {"?", "%"} & {*str(database)}:
        return complete(uri)
    # Named with its driver, so that MLflow does not make a folder of the encoded name.
    url = URL.create("sqlite+pysqlite", database=f"file:{quote(str(database))}", query={"uri": "true"})
    return url.render_as_string()


def open_store(uri: str, seconds: float = 0.0) -> MlflowClient:
    """A client on the store; a SQLite file and its folder are made where they are missing.

    Args:
        seconds: how long to wait for a server that does not answer.

    Raises:
        UserError: there is no usable store at `tracking.uri`.
    """
    database = sqlite_file(uri)
    try:
        if database is None:
            client = connect(uri)
            call_with_retries(lambda: client.search_experiments(max_results=1), without_password(uri), seconds)
            return client
        if os.path.lexists(database) and not database.is_file():  # MLflow would try to open it for minutes
            raise FileExistsError("something else than a file is there")
        database.parent.mkdir(parents=True, exist_ok=True)
        # The first opening makes the tables, and two processes at once would both try.
        with locked(Path(f"{database}.lock")):
            if database.exists():
                _must_be_sqlite(database)
            else:
                _make(database)
            client = connect(uri)
            client.search_experiments(max_results=1)
        return client
    except (MlflowException, SQLAlchemyError, sqlite3.Error, ImportError, ValueError, OSError) as error:
        raise UserError(
            f"tracking.uri={without_password(uri)} cannot be used ({reason(error)}); write another one."
        ) from error


def _must_be_sqlite(database: Path) -> None:
    """Refuses another kind of file at once, which MLflow tries to open for 100 seconds. An empty one is a database.

    SQLite reads it: closing a file of our own would end the locks that this process has on the database.
    """
    read_only = f"{database.absolute().as_uri()}?mode=ro"
    # Where it is locked, or must not be read, MLflow waits, or says so.
    with suppress(sqlite3.OperationalError), closing(sqlite3.connect(read_only, uri=True)) as opened:
        opened.execute("PRAGMA schema_version")


def _make(database: Path) -> None:
    """Makes the tables in a file of another name: MLflow takes some fifty steps, and a process killed between two of
    them would leave behind a file that no other can open."""
    unfinished = database.with_name(f"{database.name}.part")
    for left in (unfinished, unfinished.with_name(f"{unfinished.name}-journal")):
        left.unlink(missing_ok=True)
    connect(f"{SQLITE}{unfinished}").search_experiments(max_results=1)
    unfinished.replace(database)


@contextmanager
def reading(client: MlflowClient, what: str) -> Iterator[None]:
    """Names the store, and what is read from it within the block, where MLflow cannot read it.

    Raises:
        UserError: instead of whatever MLflow raises; for an unknown status that is a plain `Exception`.
    """
    try:
        yield
    except UserError:
        raise
    except Exception as error:
        raise UserError(
            f"{what} in {without_password(client.tracking_uri)} cannot be read ({reason(error)}); try again, and if "
            "it stays so put back a copy of the store, or name another one."
        ) from error


def experiments(client: MlflowClient, name: str | None) -> dict[str, str]:
    """The printable names of all experiments by their ids, or only that of one name.

    Raises:
        UserError: they cannot be read.
    """
    found: dict[str, str] = {}
    token: str | None = None
    while True:
        with reading(client, "the experiments"):
            page = client.search_experiments(page_token=token)
            found |= {e.experiment_id: printable(e.name) for e in page if e.name == name or not name}
        if not (token := page.token):
            return found


def find_experiment(client: MlflowClient, name: str) -> Experiment | None:
    """The experiment of that name.

    Raises:
        UserError: the store does not answer.
    """
    with reading(client, f"the experiment {on_one_line(name)}"):
        return client.get_experiment_by_name(name)


def search_runs(client: MlflowClient, *given: Any, **more: Any) -> PagedList[Run]:
    """MLflow's search, with a check that every run is well-formed: SQLite may hold a word where a number belongs.

    Raises:
        UserError: the runs, or one of them, cannot be read.
    """
    with reading(client, "the runs"):
        found = client.search_runs(*given, **more)
    for run in found:
        with reading(client, f"run {run.info.run_id}"):
            run.to_proto()  # protobuf messages check types, and do not accept None
            if None in (*run.data.params.values(), *run.data.tags.values()):
                raise TypeError("a parameter or tag has no value")
    return found


def tag_equals(key: str, value: str) -> str:
    """A clause of MLflow's filters, in which a value cannot contain the quotes around it.

    Raises:
        UserError: the value has both kinds of quotes.
    """
    quote = '"' if "'" in value else "'"
    if quote in value:
        raise UserError(
            f"the tag {key}={on_one_line(value)} has both kinds of quotes, which MLflow cannot search for; "
            "filter by another tag or by --experiment."
        )
    return f"tags.`{key}` = {quote}{value}{quote}"


def local_path(location: str) -> Path | None:
    """The folder of an artifact location such as file:///a%20b; None: it is not on this machine."""
    parsed = urlparse(location)
    return Path(unquote(parsed.path)) if parsed.scheme in ("", "file") else None


def check_experiment(client: MlflowClient, name: str) -> None:
    """Refuses the name of an experiment that the store does not have, or that was deleted.

    Raises:
        UserError: with the names that it has.
    """
    found = find_experiment(client, name)
    if found is not None and found.lifecycle_stage != "active":
        raise UserError(
            f"--experiment={on_one_line(name)} was deleted in MLflow; restore it there or name another experiment."
        )
    if found is None:
        names = [*experiments(client, None).values()][:_MAX_NAMES]
        known = f"write one of {', '.join(names)}" if names else "train one first: python run.py"
        raise UserError(f"--experiment={on_one_line(name)} does not exist in this store; {known}.")


def open_experiment(client: MlflowClient, name: str, artifacts: str | None) -> Experiment:
    """The experiment of that name, made where it is missing.

    Args:
        artifacts: folder for the artifacts of a new experiment; None: the server's own place.

    Raises:
        UserError: the experiment was deleted.
    """
    found = client.get_experiment_by_name(name)
    if found is None:
        try:
            location = (Path(artifacts) / name).as_uri() if artifacts else None
            return client.get_experiment(client.create_experiment(name, artifact_location=location))
        except MlflowException:
            found = client.get_experiment_by_name(name)  # another job made it meanwhile
            if found is None:
                raise
    must_be_active(found)
    return found


def must_be_active(experiment: Experiment) -> None:
    """Makes sure that an experiment can be used.

    Raises:
        UserError: it was deleted, and its runs with it, but can be restored.
    """
    if experiment.lifecycle_stage != "active":
        raise UserError(
            f"tracking.experiment={experiment.name} was deleted in MLflow; restore it there or write another "
            "tracking.experiment."
        )


def must_keep_artifacts_in(artifacts: str, experiment: Experiment) -> None:
    """Compares `tracking.artifacts` with the folder of an experiment, which MLflow does not let change.

    Raises:
        UserError: it is another one: the repository was moved, for example.
    """
    kept, name = local_path(experiment.artifact_location), Path(experiment.name)
    if not kept or kept.parts[-len(name.parts) :] != name.parts:
        return  # made by MLflow itself, which has its own places
    root = kept.parents[len(name.parts) - 1]
    if root.resolve() != Path(artifacts).resolve():
        raise UserError(
            f"tracking.artifacts={artifacts} has no effect: the experiment {experiment.name} was made with {root}; "
            f"write tracking.artifacts={root} or another tracking.experiment."
        )
