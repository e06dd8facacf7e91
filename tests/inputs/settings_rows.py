"""Hostile settings, and stores and rank tables of another kind."""

from __future__ import annotations

import copy
import json
import sqlite3
from contextlib import closing
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from unittest import mock

from hydra import initialize_config_dir

from msaccel.compare import runs
from msaccel.config import compose
from msaccel.config.bounds import bad_values
from msaccel.config.checks import refusals
from msaccel.devices import ranktable_file
from msaccel.errors import ConfigError
from msaccel.files import CONF
from msaccel.launch import resume
from msaccel.launch.job_folder import JobFolder
from msaccel.sweeps import status
from msaccel.sweeps.checked_jobs import checked_jobs
from msaccel.tracking.status import JOB_FOLDER
from msaccel.tracking.store import open_store, tag_equals

from .row import Row


@cache
def synthetic() -> Any:
    """The configuration of a job on synthetic data."""
    return compose.from_overrides(["data=synthetic"])


def value(key: str, given: Any):
    """A key has this value, which Hydra lets through."""

    def check(tmp: Path) -> None:
        config = copy.deepcopy(synthetic())
        *path, name = key.split(".")
        node = config
        for part in path:
            node = getattr(node, part)
        setattr(node, name, given)
        raise ConfigError("\n".join([*bad_values(config), *refusals(config)]))

    return check


def typed(*overrides: str):
    """A user types this."""

    def check(tmp: Path) -> None:
        compose.from_overrides(overrides)

    return check


def sweep(*overrides: str):
    """A user types this after -m."""

    def check(tmp: Path) -> None:
        from hydra.core.global_hydra import GlobalHydra
        from hydra.types import RunMode

        compose.register()
        with initialize_config_dir(str(CONF), version_base="1.3"):
            loader = GlobalHydra.instance().config_loader()
            config = loader.load_configuration("config", list(overrides), RunMode.MULTIRUN)
            raise ConfigError("\n".join(checked_jobs(config)[1]))

    return check


@cache
def _new_store() -> bytes:
    """The file of a store without runs; making one takes MLflow seconds."""
    with TemporaryDirectory() as folder:
        open_store(f"sqlite:///{folder}/mlflow.db")
        return Path(folder, "mlflow.db").read_bytes()


def store_in(tmp: Path) -> str:
    (tmp / "mlflow.db").write_bytes(_new_store())
    return f"sqlite:///{tmp}/mlflow.db"


def of_another_version(tmp: Path) -> None:
    uri = store_in(tmp)
    with closing(sqlite3.connect(tmp / "mlflow.db")) as database:
        database.execute("UPDATE alembic_version SET version_num = 'ffffffffffff'")
        database.commit()
    open_store(uri)


def no_database(tmp: Path) -> None:
    (tmp / "mlflow.db").write_bytes(b"no database" * 1000)
    open_store(f"sqlite:///{tmp}/mlflow.db")


def folder_for_a_database(tmp: Path) -> None:
    (tmp / "mlflow.db").mkdir()
    open_store(f"sqlite:///{tmp}/mlflow.db")


def store(uri: str):
    return lambda tmp: open_store(uri) and None


def deleted_experiment(tmp: Path) -> None:
    from msaccel.tracking.store import open_experiment

    client = open_store(store_in(tmp))
    client.delete_experiment(client.create_experiment("lenet-mnist"))
    open_experiment(client, "lenet-mnist", None)


def run_of_another_folder(tmp: Path) -> None:
    """A store names the folder of another job, which would go when this one has finished."""
    JobFolder(tmp).config.write_text("seed: 0\n")
    JobFolder(tmp).write("run.json", {"run_id": "0" * 32, "tracking_uri": ""})
    run = mock.Mock()
    run.info.run_id, run.data.tags = "f" * 32, {JOB_FOLDER: f"host:{tmp}"}
    resume.folder_of(run)


def hostile_tag(tmp: Path) -> None:
    runs._clause("a` = '1' or tags.`b=c")


def metric_of_words(tmp: Path) -> None:
    uri = store_in(tmp)
    client = open_store(uri)
    client.log_metric(client.create_run("0").info.run_id, "final/accuracy", 0.9)
    with closing(sqlite3.connect(tmp / "mlflow.db")) as database:
        database.execute("UPDATE latest_metrics SET value = 'abc'")
        database.commit()
    status.find(client, None, 10)


def sweep_of_both_quotes(tmp: Path) -> None:
    tag_equals("sweep_id", "a'b\"c")


def table(text: str):
    """A rank table of this text."""

    def read(tmp: Path) -> None:
        (tmp / "table.json").write_text(text)
        ranktable_file.read(tmp / "table.json")

    return read


def table_pipe(tmp: Path) -> None:
    ranktable_file.read(Path("/dev/zero"))


DEVICE = {"device_id": "0", "device_ip": "192.1.27.6", "rank_id": "0"}
SERVER = {"server_id": "10.0.0.1", "device": [DEVICE]}
TABLE = {"version": "1.0", "server_count": "1", "server_list": [SERVER], "status": "completed"}


def changed(**keys: Any) -> str:
    return json.dumps(TABLE | keys)


NAME, TAGS = "`tracking.name=`", "`tracking.tags=`"
EXPERIMENT, ARTIFACTS = "`tracking.experiment=`", "`tracking.artifacts=`"
URI, RANKS, SWEEP = "`tracking.uri=`", "`device.rank_table=`", "`run.py -m`"
ROWS = [
    Row("experiment `../../outside`", EXPERIMENT, value("tracking.experiment", "../../outside"), "is not understood"),
    Row("experiment `/outside`", EXPERIMENT, value("tracking.experiment", "/outside"), "is not understood"),
    Row("experiment `a/../../b`", EXPERIMENT, typed("tracking.experiment=a/../../b"), "is not understood"),
    Row("experiment without a name", EXPERIMENT, typed("tracking.experiment=''"), "is not understood"),
    Row("experiment of 200 characters", EXPERIMENT, value("tracking.experiment", "a" * 200), "is not understood"),
    Row("experiment with a line break", EXPERIMENT, value("tracking.experiment", "a\nb"), "a line break"),
    Row("a name of 251 characters", NAME, value("tracking.name", "n" * 251), "is not understood"),
    Row("a note of 5,000 characters", "`tracking.note=`", value("tracking.note", "n" * 5000), "has 5000 characters"),
    Row("a tag that msaccel sets", TAGS, typed("+tracking.tags.seed=3"), "is a tag that msaccel sets"),
    Row("a tag of MLflow's own", TAGS, value("tracking.tags", {"mlflow.user": "me"}), "is no name of a tag"),
    Row("a tag without +", TAGS, typed("tracking.tags.purpose=teaching"), "write +tracking.tags.purpose=teaching"),
    Row("tags too long in sum", TAGS, value("tracking.tags", {"a": "b" * 3000, "c": "d" * 3000}), "in all"),
    Row("a NUL in a path", ARTIFACTS, value("tracking.artifacts", "a\0b"), "a NUL"),
    Row("a value of 10 MB", ARTIFACTS, value("tracking.artifacts", "a" * 10**7), "has 10000000 characters"),
    Row("bytes that are no UTF-8", "`tracking.uri=`", value("tracking.uri", "a\udcffb"), "cannot be printed"),
    Row("escape codes of a terminal", "`model.init=`", value("model.init", "\x1b[2J"), "cannot be printed"),
    Row("`resume=../../etc`", "`resume=`", typed("resume=../../etc"), "is not understood"),
    Row("a number of 100 digits", "`train.epochs=`", typed(f"train.epochs={'9' * 100}"), "of more than 64 bits"),
    Row("a list where a number belongs", "`tracking.every=`", typed("tracking.every=[1,2]"), "does not exist"),
    Row("keys where a number belongs", "`tracking.every=`", typed("tracking.every={a:1}"), "does not exist"),
    Row(
        "101 milestones",
        "`schedule.milestones=`",
        typed("schedule=step", f"schedule.milestones=[{'0.5,' * 100}0.5]"),
        "has 101 entries",
    ),
    Row("synthetic pictures of a terabyte", "`data=synthetic`", value("data.train_size", 10**9), "GB of images"),
    Row(
        "an environment variable that is not set",
        ARTIFACTS,
        typed("tracking.artifacts=${oc.env:NO_SUCH_NAME}"),
        "tracking.artifacts refers with",
    ),
    Row("a reference to itself", "`seed=`", typed("seed=${seed}"), "seed refers with"),
    Row("no option of a group", "`model=`", typed("model=null"), "names no option"),
    Row("a file in place of an option", "`model=`", typed("model=lenet.yaml"), "names a file"),
    Row("no method in a list", "`accel=`", typed("accel=[]"), "names no option"),
    Row("no key in braces", "`optimizer=`", typed("optimizer={}"), "sets nothing"),
    Row("an empty path", "`data.root=`", typed("data.root="), "is empty"),
    Row("a sweep in Hydra's own keys", SWEEP, typed("hydra.sweeper.params={seed: 5}"), "cannot be set here"),
    Row("a list within a list", "`accel=`", typed("accel=[accum,[clip]]"), "names no option"),
    Row("another group in place of a key", "`seed=`", typed("seed=${optimizer}"), "has the wrong type"),
    Row("another group in place of a group", "`train=`", typed("train=${optimizer}"), "holds other keys"),
    Row("a key that is deleted", "`~train`", typed("~train"), "a job needs all of them"),
    Row("a value without a key", "`=5`", typed("=5"), "has no key"),
    Row("400 brackets within each other", "`seed=`", typed(f"seed={'[' * 400}"), "more than 100 brackets"),
    Row("a number of 5,000 digits", "`seed=`", typed(f"seed={'9' * 5000}"), "too large for any key"),
    Row("the name of another option", "`model.name=`", typed("model.name=resnet50"), "set by the choice of model"),
    Row("true where a number belongs", "`tracking.every=`", typed("tracking.every=true"), "does not exist"),
    Row("a bucket in place of a folder", ARTIFACTS, typed("tracking.artifacts=s3://bucket/a"), "is no folder"),
    Row("a file name of 300 bytes", "`data.root=`", typed(f"data.root=/tmp/{'a' * 300}"), "more than 255 bytes"),
    Row("1,900 folders within each other", "`data.root=`", typed(f"data.root={'a/' * 1900}"), "more than 100 folders"),
    Row("a sweep in steps of 0", SWEEP, typed("seed=range(0,3,0)"), "has no end"),
    Row("a sweep over nothing", SWEEP, sweep("seed=glob(*)"), "has no jobs"),
    Row("a sweep of 10¹² jobs", SWEEP, sweep("seed=range(0,1000000000000)"), "more than 10000 jobs"),
    Row("a sweep of 200 × 200 jobs", SWEEP, sweep("seed=range(0,200)", "train.epochs=range(1,201)"), "seed (200) × "),
    Row("a wrong value in one job of a sweep", SWEEP, sweep("seed=0,-1"), "seed=-1 is out of range"),
    Row("address without a scheme", URI, typed("tracking.uri='name:secret@host:5000'"), "not shown"),
    Row("address with a token", URI, typed("tracking.uri='http://host:5000?auth=secret'"), "not shown"),
    Row("password in another key", ARTIFACTS, value("tracking.artifacts", "https://a:b@c"), "with a password"),
    Row("MLflow store of another version", URI, of_another_version, "cannot be used"),
    Row("MLflow store that is no database", URI, no_database, "cannot be used"),
    Row("folder in place of a database", URI, folder_for_a_database, "cannot be used"),
    Row("store of an unknown kind", URI, store("gopher://somewhere/mlflow"), "cannot be used"),
    Row("database that MLflow does not know", URI, store("oracle://somewhere/mlflow"), "cannot be used"),
    Row("experiment that was deleted", EXPERIMENT, deleted_experiment, "was deleted in MLflow"),
    Row("run that names another job's folder", "`resume=`", run_of_another_folder, "the folder of another run"),
    Row("MLflow store with a word for a number", "`python -m msaccel status`", metric_of_words, "cannot be read"),
    Row("both quotes in a sweep's name", "`python -m msaccel compare --sweep`", sweep_of_both_quotes, "both kinds of"),
    Row("quotes in a tag", "`python -m msaccel compare --tag`", hostile_tag, "is not a tag"),
    Row("rank table that is no JSON", RANKS, table("{"), "this is not JSON"),
    Row("rank table nested 100,000 deep", RANKS, table("[" * 10**5), "nested too deep"),
    Row("rank table of 2 MB", RANKS, table(" " * 2 * 10**6), "goes on after 1 MB"),
    Row("rank table with an unknown key", RANKS, table(changed(evil="1")), "is no key of"),
    Row("rank table of version 2", RANKS, table(changed(version="2.0")), 'write "1.0"'),
    Row(
        "rank table with an address that is none",
        RANKS,
        table(changed(server_list=[SERVER | {"server_id": "1.2.3"}])),
        "no IPv4",
    ),
    Row("a device in place of a rank table", RANKS, table_pipe, "dev/zero"),
]
