"""A store for each test, one with runs that several tests read, and real pictures in colour."""

import os
from pathlib import Path

import pytest

from msaccel.data import cifar_jpeg
from msaccel.data.fetch import locate
from msaccel.errors import DataError

from .running import SMALL, Store


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path)


@pytest.fixture(scope="session")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Store:
    """A store with two finished runs: accumulation with a validation split, and the same again."""
    store = Store(tmp_path_factory.mktemp("trained"))
    for _ in range(2):
        ended = store.run(*SMALL, "accel=accum", "data.val_fraction=0.1", "train.target_accuracy=0.05")
        assert ended.returncode == 0, ended.stderr
    return store


@pytest.fixture(scope="session")
def cifar10() -> Path:
    """The real files, from the cache every job uses."""
    try:
        return locate("cifar10", None, os.environ.get("MSACCEL_CACHE", "~/.cache/msaccel"))
    except DataError as error:
        pytest.skip(str(error))


@pytest.fixture(scope="session")
def tree(cifar10: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The first 200 + 200 of them as an image folder."""
    root = tmp_path_factory.mktemp("tree") / "jpeg"
    root.mkdir()
    cifar_jpeg.write(cifar10, root, limit=200)
    return root
