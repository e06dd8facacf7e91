"""A store for each test, and one with runs that several tests read."""

from pathlib import Path

import pytest

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
