"""Studies: what they declare, and a tiny one that is trained, goes on where it was, and writes its card.

Of the tiny one's twelve jobs three are trained; the others are copies of those, with another rate or seed and a little
noise, since a job takes seconds and the runner sees no difference.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path

import pytest
from mlflow.entities import Metric, Param

from msaccel.compare.render.card import RESULTS, markers
from msaccel.compare.runs import Record
from msaccel.config import compose
from msaccel.errors import ConfigError
from msaccel.study import cards, plots, protocol, protocol_file, published, results
from msaccel.study.jobs import StudyJob, check_conditions, make_jobs
from msaccel.study.launcher_pool import Launchers
from msaccel.study.plan import most_jobs, plan
from msaccel.study.runner import StudyRunner, neighbours
from msaccel.tracking.status import FINISHED
from msaccel.tracking.store import open_store

TINY = """
claim: Clipping helps a tiny network.
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
    arms:
      plain: [accel=none]
      clipped: [accel=clip, accel.clip.max_norm=0.1]
    hypothesis: {{method: clipped, baseline: plain, kind: better, margin: 1}}
    rates: [0.01, 0.1]
    extend: 0
    seeds: [3]
    trial_seeds: 3
    seconds: 7
"""
CARD = "# tiny\n\n**Question.** None.\n\n<!-- results -->\n<!-- /results -->\n\n**Comment, 2026-11-22.** By hand.\n"


TUTORIALS = ["adasum", "clipping", "dimreduce", "grad_accum_lenet", "grad_accum_mlp"]  # one study for each


def test_studies_have_cards_and_protocols() -> None:
    assert {*protocol_file.names()} >= {*TUTORIALS}
    for name in protocol_file.names():
        card = protocol_file.load(name).card.read_text()
        assert "**Question.**" in card and "**Protocol.**" in card and f"python -m msaccel study {name}" in card
        for paragraph in filter(None, card.partition(markers(RESULTS)[1])[2].strip().split("\n\n")):
            is_comment = re.match(r"\*\*Comment, \d{4}-\d\d-\d\d|\| ", paragraph)
            assert is_comment, "what is not generated is dated, or a table below a date"


METHODS = {*protocol_file.names()} - {*TUTORIALS, "bfloat16"}


def hours(name: str) -> float:
    """Of a study with every look, on grids that need not grow, at the declared seconds."""
    parts = protocol_file.load(name).parts.values()
    return sum(most_jobs(part) * part.seconds / part.beside for part in parts) / 3600


@pytest.mark.parametrize(("names", "most"), [(TUTORIALS, 6.5), (METHODS, 3.5), (["bfloat16"], 1)])
def test_all_studies_take_these_hours_at_most(names: Collection[str], most: float) -> None:
    assert sum(map(hours, names)) <= most


def test_the_list_of_studies_says_their_hours() -> None:
    listed = (protocol.EXPERIMENTS / "README.md").read_text()
    rows = re.findall(r"^\| \[(\w+)\]\(\1/README.md\) \| .* \| ([\d.]+) \|$", listed, re.MULTILINE)
    assert dict(rows) == {name: f"{hours(name):.1f}" for name in protocol_file.names()}


def test_neighbours() -> None:
    assert [neighbours(rate, [1, 2, 3], 1) for rate in (1, 2, 3)] == [[1, 2], [1, 2, 3], [2, 3]]
    assert neighbours(2, [1, 2, 3], 0) == [2]


WRONG = [
    ("rates: [0.01, 0.1]", "rates: [0.1, 0.01]", "must rise"),
    ("rates: [0.01, 0.1]", "rate: [0.1]", "rate is not a key"),
    ("extend: 0", "own_rates: {clipped: [1.0, 0.1]}", r"own_rates.clipped=\[1.0, 0.1\] must rise"),
    ("extend: 0", "own_rates: {clip: [1.0, 10.0]}", "own_rates.clip is no arm; write one of plain, clipped"),
    ("extend: 0", "own_rates: {clipped: [1.0]}", r"are 1 rates; write 2, as many as others have"),
    ("extend: 0", "speed: true\n    beside: 1\n    own_rates: {clipped: [1.0, 10.0]}", "at one rate, without controls"),
    ("rates: [0.01, 0.1]", "rates: [often]", "has the wrong type"),
    ("seeds: [3]", "seeds: [0]", r"write \[10, 20, 40\], or one number"),
    ("seeds: [3]", "seeds: [2, 4, 6, 8]", "write at most 3"),
    ("seeds: [3]", "seeds: [10, 20]\n    level: 0.05", "write level: 0.02 or less"),
    ("method: clipped", "method: clip", "is no arm; write one of plain, clipped"),
    ("kind: better", "kind: faster", "write better or equivalent"),
    ("margin: 1", "margin: 0", "margin=0 is no number of points"),
    ("margin: 1", "margin: 1, endpoint: loss", "write one of final_accuracy, superiority, trains, samples_per_sec"),
    ("margin: 1", "margin: 10, endpoint: superiority", "cannot show superiority at level 0.02; begin with 7 or more"),
    ("margin: 1", "margin: 1, rate: 0.2", "is not trained"),
    ("margin: 1", "margin: 1, endpoint: samples_per_sec", "is for parts that measure speed alone; write speed: true"),
    ("trial_seeds: 3", "trial_seeds: 2", "choose a rate by 2 runs; write trial_seeds: 3 and seeds of at least as many"),
    ("seeds: [3]", "seeds: [2]", r"trial_seeds=3 and seeds=\[2\] choose a rate by 2 runs"),
    ("extend: 0", "speed: true", "write beside: 1 and one rate"),
    ("extend: 0", "controls: {planted: 8, again: 1}", "write again: 1000"),
    ("extend: 0", "first_seed: 1999\n    controls: {planted: 8}", "again from 2002 on; write again: 2002"),
    ("extend: 0", "first_seed: -1", "write 0, or 100"),
    ("margin: 1", "margin: 50, endpoint: superiority", "holds every probability; write 10"),
]


@pytest.mark.parametrize(("right", "wrong", "said"), WRONG)
def test_a_protocol_that_is_wrong_is_told_in_a_sentence(
    right: str, wrong: str, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(protocol, "EXPERIMENTS", tmp_path)
    text = TINY.format(folder=tmp_path)
    (tmp_path / "one").mkdir()
    (tmp_path / "one/study.yaml").write_text(text)
    assert protocol_file.load("one").parts["accuracy"].seeds == [3]
    (tmp_path / "one/study.yaml").write_text(text.replace(right, wrong))
    with pytest.raises(ConfigError, match=said) as caught:
        protocol_file.load("one")
    assert "\n" not in str(caught.value)


def test_arms_under_other_conditions_are_refused_before_they_are_trained(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(protocol, "EXPERIMENTS", tmp_path)
    compose.register()
    (tmp_path / "one").mkdir()
    text = TINY.format(folder=tmp_path)
    for arm, said in (
        ("[accel=clip, accel.clip.max_norm=0.1]", ""),
        ("[accel=clip, train.epochs=4]", ""),
        (
            "[accel=clip, data.val_fraction=0.1]",
            r"data\.val_fraction is 0\.1 for clipped and 0\.2 for plain.* the same",
        ),
        ("[accel=clip, train.tta=flip]", r"train\.tta is flip for clipped and none for plain"),
        ("[accel=clip, model=lenet]", r"model\.name is lenet for clipped and mlp for plain"),
    ):
        (tmp_path / "one/study.yaml").write_text(text.replace("[accel=clip, accel.clip.max_norm=0.1]", arm))
        study = protocol_file.load("one")
        with pytest.raises(ConfigError, match=said) if said else nullcontext():
            check_conditions(study, [])


@pytest.mark.slow
def test_the_command_prints_its_plan(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    from msaccel.__main__ import main

    store = f"sqlite:///{tmp_path}/mlflow.db"
    assert main(["study", "clipping", "--dry-run", "--tracking-uri", store]) == 0
    said = capsys.readouterr().out
    assert (
        "no clipping  0.01: 0/20  0.02: 0/20" in said
        and "hours in all; more where a grid of rates grows, fewer where a look decides" in said
    )
    assert main(["study", "clipping", "clipping", "--dry-run", "--tracking-uri", store]) == 0
    assert capsys.readouterr().out == said, "a study that is named twice counts once"
    assert main(["study", "clipping", "seed=3", "--dry-run", "--tracking-uri", store]) == 2
    assert main(["study", "clipping", "train.epochs=1", "--into", "README.md", "--tracking-uri", store]) == 2
    assert main(["study", "nothing", "--dry-run", "--tracking-uri", store]) == 2
    assert capsys.readouterr().err.splitlines() == [
        "seed is declared in study.yaml for every job; write rates or seeds there.",
        "--into publishes the studies as they are declared; leave out train.epochs=1, or --into.",
        f"study nothing does not exist; write one of {', '.join(protocol_file.names())}.",
    ]


@pytest.mark.slow
def test_what_was_published_counts_in_a_plan(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    from msaccel.__main__ import main

    store = f"sqlite:///{tmp_path}/mlflow.db"
    assert main(["study", "clipping", "dimreduce", "--dry-run", "--published", "--tracking-uri", store]) == 0
    parts = [line for line in capsys.readouterr().out.splitlines() if " jobs done, " in line]
    assert len(parts) == sum(len(protocol_file.load(name).parts) for name in ("clipping", "dimreduce"))
    assert not any(" 0 jobs done, " in part for part in parts)


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
        runner = StudyRunner(protocol_file.load("tiny"), open_store(uri), uri)
        (part,) = runner.study.parts.values()
        first = make_jobs(runner.study, part, [], dict.fromkeys(part.arms, part.rates[:1]), [0])
        with Launchers(uri, "study-tiny") as launchers:
            launchers.train(first, part.beside, lambda *_: None)
        runner.refresh()
        assert runner.runs.missing(first) == []
        every = make_jobs(runner.study, part, [], dict.fromkeys(part.arms, part.rates), range(part.seeds[-1]))
        for job in runner.runs.missing(every)[:-1]:
            like = next(record for one, record in runner.runs.of_jobs(first).items() if one.arm == job.arm)
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
    assert len(jobs) == 2 * 2 * 3, "methods × rates × seeds: of two rates each is the other's neighbour"
    assert len(tiny.runs.missing(jobs)) == 1
    tiny.run()
    said = capfd.readouterr().out
    assert "tiny, accuracy: 1 job, 2 at a time" in said and "1/1  clipped, optimizer.lr=0.1, seed 2" in said
    assert tiny.runs.missing(jobs) == [] and len(runs(tiny)) == len(jobs)
    assert plan(tiny)[1] == 0


@pytest.mark.slow
def test_it_chooses_what_compare_would(tiny: StudyRunner) -> None:
    (part,) = tiny.study.parts.values()
    found = tiny.runs.of_jobs(tiny.trials(part))
    scores = {(job.arm, job.rate): run.metrics["val/accuracy"] for job, run in found.items()}
    for method, rate in tiny.chosen_rates(part).items():
        assert scores[method, rate] == max(scores[method, other] for other in part.rates)


@pytest.mark.slow
def test_the_card_holds_what_came_out(tiny: StudyRunner) -> None:
    cards.write(tiny)
    card = tiny.study.card.read_text()
    assert card.startswith(CARD.partition("<!-- results")[0]) and card.endswith("**Comment, 2026-11-22.** By hand.\n")
    assert "**Claim.** Clipping helps a tiny network." in card
    assert (
        "**Hypothesis:** clipped reaches a higher accuracy than plain. **Undecided:** no verdict: grid too narrow"
        in card
    )
    assert "### A tiny one" in card and "Not complete" not in card
    assert "`python -m msaccel study tiny`: 12 runs" in card and "mindspore==" in card
    assert "samples/s |" not in card.split("Every rate")[1], "two jobs beside each other tell nothing about speed"
    assert tiny.study.plot_file.stat().st_size > 10_000
    assert len(published.read(tiny.study)) == 12


@pytest.mark.slow
def test_a_part_without_runs_has_no_panel(tiny: StudyRunner, monkeypatch: pytest.MonkeyPatch) -> None:
    (part,) = tiny.study.parts.values()
    later = replace(part, title="Later", common=[*part.common, "train.label_smoothing=0.1"])
    for parts, panels in (({"now": part, "later": later}, 1), ({"later": later}, 0)):
        monkeypatch.setattr(tiny, "study", replace(tiny.study, parts=parts))
        figure = plots.rates(tiny)
        assert (len(figure.axes) if figure else 0) == panels


@pytest.mark.slow
def test_overrides_make_it_another_study(tiny: StudyRunner) -> None:
    """So none of its runs is one of theirs, and its card is not theirs."""
    other = StudyRunner(tiny.study, tiny.client, tiny.uri, ["train.epochs=1"])
    (part,) = other.study.parts.values()
    assert len(other.runs.missing(other.trials(part))) == 12
    assert results.part_results(other) == []
