"""The studies of this repository: every arm can be trained, and the published runs give the table in the README and the
sentences for a colleague, to the letter."""

from __future__ import annotations

import itertools
from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest

from msaccel.__main__ import main
from msaccel.config.bounds import bad_values
from msaccel.config.checks import refusals, without_effect
from msaccel.config.compose import from_overrides
from msaccel.study import jobs, plots, protocol_file
from msaccel.study.jobs import make_jobs

ROOT = Path(__file__).parents[2]
configuration = cache(from_overrides)  # both tests need it of every arm, and composing takes most of their time


@pytest.mark.parametrize("name", protocol_file.names())
def test_every_arm_of_a_study_can_be_trained(name: str) -> None:
    """With the lowest rate: values of rates and seeds are all there is between the jobs of an arm."""
    study = protocol_file.load(name)
    assert study.claim.endswith(".") and any(part.hypothesis for part in study.parts.values())
    for part in study.parts.values():
        for job in make_jobs(study, part, [], {arm: rates[:1] for arm, rates in part.grids.items()}, [0]):
            arm = configuration(job.settings)
            config = replace(arm, optimizer=replace(arm.optimizer, lr=job.rate), seed=job.seed)
            assert [*bad_values(config), *refusals(config), *without_effect(config, [*job.overrides])] == [], job
            assert config.train.epochs, "the budget is in epochs"
            assert not part.tuned or config.data.val_fraction > 0, "rates are chosen by validation"
        for rates in part.grids.values():
            assert all(2 * one == other for one, other in itertools.pairwise(rates)) or not part.tuned


@pytest.mark.slow
def test_the_published_runs_give_the_published_answers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The command also refuses a study whose arms are not under the same conditions. Curves over rates are drawn of
    planted studies elsewhere."""
    monkeypatch.setattr(jobs, "from_overrides", configuration)
    monkeypatch.setattr(plots, "rate_panels", lambda runner: [])
    written = ("README.md", "docs/answer.md")
    (tmp_path / "docs").mkdir()
    for name in written:
        (tmp_path / name).write_text((ROOT / name).read_text())
    store = f"sqlite:///{tmp_path}/mlflow.db"
    readme = str(tmp_path / "README.md")
    assert main(["study", "all", "--no-training", "--into", readme, "--tracking-uri", store]) == 0
    for name in written:
        assert (tmp_path / name).read_text() == (ROOT / name).read_text()
