"""What a number was measured with."""

import subprocess
from importlib.metadata import distributions
from pathlib import Path

import pytest

from msaccel.tracking import provenance


def test_all_installed_packages_are_listed_with_their_versions() -> None:
    machine, *packages = provenance.environment().splitlines()
    assert machine.startswith("# ")
    assert set(packages) == {f"{dist.metadata['Name']}=={dist.version}" for dist in distributions()}


def test_a_commit_is_dirty_when_what_decides_a_run_differs_from_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def git(*arguments: str) -> None:
        identity = ("-c", "user.name=a", "-c", "user.email=a@b")
        subprocess.run(["git", "-C", str(tmp_path), *identity, *arguments], check=True, capture_output=True)

    for name in ("src/code.py", "conf/config.yaml", "experiments/a/README.md"):
        (tmp_path / name).parent.mkdir(parents=True)
        (tmp_path / name).write_text("before")
    git("init")
    git("add", ".")
    git("commit", "-m", "all")
    monkeypatch.setattr(provenance, "ROOT", tmp_path)
    commit = provenance.git_commit.__wrapped__()
    assert len(commit) == 40
    (tmp_path / "experiments/a/README.md").write_text("a study's results")
    assert provenance.git_commit.__wrapped__() == commit
    (tmp_path / "conf/config.yaml").write_text("another rate")
    assert provenance.git_commit.__wrapped__() == f"{commit}-dirty"
