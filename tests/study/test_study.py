"""Studies: every job of theirs can be composed, a tiny one is trained, goes on where it was, and writes its card.

Of the tiny one's eight jobs three are trained; the others are copies of those, with another rate or seed and a little
noise, since a job takes seconds and the runner sees no difference.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from mlflow.entities import Metric, Param

from msaccel.compare.runs import Record
from msaccel.config import compose
from msaccel.config.bounds import bad_values
from msaccel.config.checks import refusals
from msaccel.errors import ConfigError
from msaccel.study import cards, protocol, results
from msaccel.study.jobs import StudyJob, make_jobs
from msaccel.study.launchers import Launchers
from msaccel.study.runner import StudyRunner, neighbours
from msaccel.tracking.status import FINISHED
from msaccel.tracking.store import open_store

TINY = """
parts:
  accuracy:
    title: A tiny one
    common:
      - model=mlp
      - data=synthetic
      - data.train_size=340
      - data.test_size=70
      - data.val_fraction=0.2
      - train.epochs=2
      - tracking.artifacts={folder}/artifacts
    methods:
      plain: [accel=none]
      clipped: [accel=clip, accel.clip.max_norm=0.1]
    rates: [0.01, 0.1]
    seeds: 2
    trial_seeds: 1
    by_epoch: true
    seconds: 7
"""
CARD = "# tiny\n\n**Question.** None.\n\n<!-- results -->\n<!-- /results -->\n\n**Verdict.** By hand.\n"


def test_the_five_studies_are_there_with_cards_and_protocols() -> None:
    assert protocol.names() == ["adasum", "clipping", "dimreduce", "grad_accum_lenet", "grad_accum_mlp"]
    for name in protocol.names():
        card = protocol.load(name).card.read_text()
        assert "**Question.**" in card and "**Protocol.**" in card and f"python -m msaccel study {name}" in card


@pytest.mark.parametrize("name", protocol.names())
def test_every_method_of_a_study_can_be_trained(name: str, composed) -> None:  # type: ignore[no-untyped-def]
    """With the lowest rate: values of rates and seeds are all there is between the jobs of a method."""
    study = protocol.load(name)
    for part in study.parts.values():
        for job in make_jobs(study, part, [], dict.fromkeys(part.methods, part.rates[:1]), [0]):
            config = composed(*job.overrides)
            assert [*bad_values(config), *refusals(config)] == [], job.command
            assert config.train.epochs, "the budget is in epochs"
            assert len(part.rates) == 1 or config.data.val_fraction > 0, "rates are chosen by validation"
        assert part.seeds >= 5 and len(part.rates) in (1, 3, 4, 5, 6, 7)


def test_neighbours() -> None:
    part = protocol.StudyPart("one", {}, [1, 2, 3])
    assert [neighbours(rate, part) for rate in part.rates] == [[1, 2], [1, 2, 3], [2, 3]]
    assert neighbours(2, protocol.StudyPart("one", {}, [1, 2, 3], neighbours=0)) == [2]


def test_a_protocol_that_is_wrong_is_told_in_a_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(protocol, "EXPERIMENTS", tmp_path)
    for number, (line, said) in enumerate(
        [
            ("rates: [0.1, 0.01]", "must rise"),
            ("rate: [0.1]", "rate is not a key"),
            ("rates: [often]", "has the wrong type"),
            ("seeds: 0", "at least one seed"),
        ]
    ):
        (tmp_path / f"s{number}").mkdir()
        text = TINY.replace("rates: [0.01, 0.1]", line) if "rate" in line else TINY.replace("seeds: 2", line)
        (tmp_path / f"s{number}/study.yaml").write_text(text)
        with pytest.raises(ConfigError, match=said):
            protocol.load(f"s{number}")
    with pytest.raises(ConfigError, match="study nothing does not exist; write one of s0, s1"):
        protocol.load("nothing")


def test_the_command_prints_its_plan(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    from msaccel.__main__ import main

    store = f"sqlite:///{tmp_path}/mlflow.db"
    assert main(["study", "clipping", "seed=3", "--dry-run", "--tracking-uri", store]) == 0
    said = capsys.readouterr().out
    assert said.count("python run.py") == (7 * 2 + 5 * 4) * 4 and "about" in said
    assert main(["study", "nothing", "--dry-run", "--tracking-uri", store]) == 2


def planted(runner: StudyRunner, job: StudyJob, like: Record) -> None:
    """A run of the job, with the numbers of another one and some noise."""
    client, noise = runner.client, (job.rate + job.seed) / 100
    run = client.create_run(client.get_experiment_by_name("tiny").experiment_id, run_name=like.name, tags=like.tags)
    params = like.params | {"optimizer.lr": str(job.rate), "seed": str(job.seed)}
    points = {name: min(1.0, value + noise) if "accuracy" in name else value for name, value in like.metrics.items()}
    metrics = [Metric(name, value, 1, step) for name, value in points.items() for step in (9, 18)]
    client.log_batch(run.info.run_id, metrics, [Param(key, value) for key, value in params.items()])
    client.log_text(run.info.run_id, "# a machine\nmindspore==2.10.0", "environment.txt")
    client.set_terminated(run.info.run_id, FINISHED)


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StudyRunner]:
    """A study of its own folder, with all of its runs but one."""
    folder = tmp_path_factory.mktemp("experiments")
    (folder / "tiny").mkdir()
    (folder / "tiny/study.yaml").write_text(TINY.format(folder=folder))
    (folder / "tiny/README.md").write_text(CARD)
    compose.register()
    uri = f"sqlite:///{folder}/mlflow.db"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(protocol, "EXPERIMENTS", folder)
        runner = StudyRunner(protocol.load("tiny"), open_store(uri), uri)
        (part,) = runner.study.parts.values()
        first = make_jobs(runner.study, part, [], dict.fromkeys(part.methods, part.rates[:1]), [0])
        with Launchers(uri, "study-tiny") as launchers:
            launchers.train(first, part.beside, lambda *_: None)
        runner.refresh()
        assert runner.runs.missing(first) == []
        every = make_jobs(runner.study, part, [], dict.fromkeys(part.methods, part.rates), range(part.seeds))
        for job in runner.runs.missing(every)[:-1]:
            like = next(record for one, record in runner.runs.of_jobs(first).items() if one.method == job.method)
            planted(runner, job, like)
        runner.refresh()
        yield runner


def runs(runner: StudyRunner) -> list[str]:
    found = runner.client.get_experiment_by_name("tiny")
    return [run.info.run_id for run in runner.client.search_runs([found.experiment_id]) if run.info.status == FINISHED]


@pytest.mark.slow
def test_only_what_is_missing_is_trained(tiny: StudyRunner, capfd: pytest.CaptureFixture[str]) -> None:
    (part,) = tiny.study.parts.values()
    jobs = tiny.jobs(part)
    assert len(jobs) == 2 * 2 * 2, "methods × rates × seeds: of two rates each is the other's neighbour"
    assert len(tiny.runs.missing(jobs)) == 1
    tiny.run()
    said = capfd.readouterr().out
    assert "tiny, accuracy, seeds: 1 job, 2 at a time" in said and "1/1  clipped, optimizer.lr=0.1, seed 1" in said
    assert tiny.runs.missing(jobs) == [] and len(runs(tiny)) == len(jobs)
    assert tiny.plan()[1] == 0


@pytest.mark.slow
def test_it_chooses_what_compare_would(tiny: StudyRunner) -> None:
    (part,) = tiny.study.parts.values()
    found = tiny.runs.of_jobs(tiny.trials(part))
    scores = {(job.method, job.rate): run.metrics["val/accuracy"] for job, run in found.items()}
    for method, rate in tiny.chosen_rates(part).items():
        assert scores[method, rate] == max(scores[method, other] for other in part.rates)


@pytest.mark.slow
def test_the_card_holds_what_came_out(tiny: StudyRunner) -> None:
    cards.write(tiny)
    card = tiny.study.card.read_text()
    assert card.startswith(CARD.partition("<!-- results")[0]) and card.endswith("**Verdict.** By hand.\n")
    assert "### A tiny one" in card and "tuned on too few seeds" in card and "Not complete" not in card
    assert "`python -m msaccel study tiny`: 8 runs" in card and "mindspore==" in card
    assert re.search(r"\| plain \| 2 \| \d+\.\d+% ± \d+\.\d+% \| \d+\.\d+%", card), "accuracy after each epoch"
    assert "samples/s |" not in card.split("Every rate")[1], "two jobs beside each other tell nothing about speed"
    assert tiny.study.plot_file.stat().st_size > 10_000


@pytest.mark.slow
def test_the_table_over_studies(tiny: StudyRunner, tmp_path: Path) -> None:
    page = tmp_path / "README.md"
    page.write_text("<!-- results -->\n<!-- /results -->\n")
    cards.write_overview([tiny], page)
    assert "| [tiny](experiments/tiny/README.md): A tiny one |" in page.read_text()
    assert (tmp_path / cards.OVERVIEW).exists()


@pytest.mark.slow
def test_overrides_make_it_another_study(tiny: StudyRunner) -> None:
    """So none of its runs is one of theirs, and its card is not theirs."""
    other = StudyRunner(tiny.study, tiny.client, tiny.uri, ["train.epochs=1"])
    (part,) = other.study.parts.values()
    assert len(other.runs.missing(other.trials(part))) == 4
    assert results.part_results(other) == []
