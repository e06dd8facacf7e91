"""Bad inputs given to real commands: the exit code, one sentence, and nothing half written."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from tests.data.test_image_folder import make_tree
from tests.running import Store, python

from .state_rows import PICKLE

pytestmark = pytest.mark.slow
SENTENCE = r"[^\n]{10,400}[.\w]\n"


@pytest.fixture
def store(tmp_path: Path) -> Store:
    (tmp_path / "store").mkdir()
    return Store(tmp_path / "store")


def assert_refused(ended: subprocess.CompletedProcess[str], phrase: str, code: int = 2) -> None:
    assert ended.returncode == code, ended.stderr
    assert phrase in ended.stderr and re.fullmatch(SENTENCE, ended.stderr), ended.stderr


@pytest.mark.parametrize(
    ("typed", "phrase"),
    [
        (("tracking.experiment=../../outside",), "tracking.experiment=../../outside is not understood"),
        (('data.root="a\nb"', "model=mlp"), r"data.root=a\nb contains a line break"),
        (("-m", "seed=range(0,1000000000000)"), "the sweep has more than 10000 jobs"),
        (("seed=" + "9" * 5000,), "holds a number that is too large for any key"),
    ],
)
def test_settings_are_refused_before_anything_is_made(store: Store, typed: tuple[str, ...], phrase: str) -> None:
    assert_refused(store.run(*typed), phrase)
    assert not (store.folder / "mlflow.db").exists() and not list((store.folder).rglob("run.json"))
    assert [path.name for path in store.folder.parent.iterdir()] == ["store"]


@pytest.mark.parametrize("typed", [("hydra.run.dir=",), ("-m", "seed=0,1", "hydra.sweep.dir=")], ids=["job", "sweep"])
def test_a_folder_with_the_users_files_is_not_taken_for_a_jobs(store: Store, typed: tuple[str, ...]) -> None:
    results = store.folder.parent / "results"
    results.mkdir()
    (results / "thesis.tex").write_text("years of work")
    assert_refused(store.run("optimizer.lr=-1", *typed[:-1], f"{typed[-1]}{results}"), "holds other files")
    assert (results / "thesis.tex").read_text() == "years of work" and len(list(results.iterdir())) == 1


def test_a_pickle_in_place_of_weights_ends_the_run_and_is_not_executed(store: Store) -> None:
    (store.folder / "weights.safetensors").write_bytes(PICKLE)
    given = [f"accel.dimreduce.{key}={store.folder}/weights.safetensors" for key in ("weights", "pca.path")]
    small = ("data=synthetic", "data.train_size=64", "data.test_size=32", "train.batch_size=16", "train.epochs=2")
    ended = store.run("model=mlp", "accel=dimreduce", "accel.dimreduce.components=2", *small, *given)
    assert ended.returncode == 1 and "cannot be read as a checkpoint" in ended.stderr
    assert [run.info.status for run in store.runs()] == ["FAILED"]
    assert not list(store.folder.parent.rglob("harm"))


def test_a_store_that_is_no_database(store: Store) -> None:
    (store.folder / "mlflow.db").write_bytes(b"no database" * 1000)
    before = (store.folder / "mlflow.db").read_bytes()
    ended = python("-m", "msaccel", "eval", "../../x", "--tracking-uri", store.uri, folder=store.folder)
    assert_refused(ended, "file is not a database")
    assert (store.folder / "mlflow.db").read_bytes() == before


def test_pictures_that_cannot_be_used_are_named(store: Store) -> None:
    root = make_tree(store.folder / "tree")
    (root / "val" / "cow" / "1.JPEG").write_bytes(b"<html>404</html>")
    check = ("-m", "msaccel", "data", "check", "--root", str(root), "--cache", str(store.folder))
    ended = python(*check, folder=store.folder)
    assert ended.returncode == 1 and "val/cow/1.JPEG cannot be decoded" in ended.stdout
