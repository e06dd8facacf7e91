"""Published runs give the same answers, and are trained again: equal, near, or not what was published."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from msaccel.__main__ import main
from msaccel.errors import ConfigError
from msaccel.study import plots, protocol_file, published, results
from msaccel.study.claims import claims
from tests.study.simulated import PART, Simulated, peak

CHECK = ["study", "--check", "--jobs", "3"]


@pytest.fixture
def study(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Simulated:
    """One that was trained and published; the runs of a check start from none."""
    found = Simulated(
        tmp_path, monkeypatch, PART.replace("    seconds", "    controls: {planted: 0.25}\n    seconds"), peak
    )
    found.runner.run()
    published.file_of(found.runner.study).write_text(published.as_csv(found.runner))
    found.records = []
    return found


def test_it_is_read_as_it_was_written(study: Simulated) -> None:
    runs = published.read(study.runner.study)
    assert {(job.arm, job.rate, job.seed) for job, _ in runs} == study.trained()
    assert all(run.metrics == peak(job) for job, run in runs)
    assert (study.runner.study.card.parent / "runs.csv").stat().st_size < 450 * len(runs)


def test_published_runs_give_the_same_answer_as_those_of_the_store(study: Simulated) -> None:
    (answered,) = claims([study.runner])
    study.runner.refresh()
    (without,) = claims([study.runner])
    study.runner.published = published.records(study.runner.study)
    study.runner.refresh()
    (again,) = claims([study.runner])
    assert again.trained and not without.trained
    assert results.overview([again]) == results.overview([answered])
    assert study.runner.controlled(study.part) and plots.rate_panels(study.runner)
    assert not study.runner.missing(study.part), "what is published is all that the answer takes"


def test_runs_of_an_arm_that_is_no_longer_declared_are_refused(study: Simulated) -> None:
    path = study.runner.study.card.with_name("study.yaml")
    path.write_text(path.read_text().replace("clipped", "bounded"))
    said = r"runs\.csv has runs of one, clipped, which study.yaml lacks; remove the file and train the study"
    with pytest.raises(ConfigError, match=said):
        published.read(protocol_file.load("simulated"))


@pytest.mark.parametrize(
    "damage",
    [
        lambda text: "",
        lambda text: text.partition("\n")[2],
        lambda text: text[:-9],
        lambda text: text.replace("0.02", "fast", 1),
        lambda text: text.replace("FINISHED", "DONE", 1),
        lambda text: text.replace("3.0\n", "nan\n", 1) if "3.0\n" in text else text.replace("0.9", "nan", 1),
        lambda text: text.replace("\n", ",1\n", 2),
        lambda text: text.replace("clipped", "clip\udcff", 1),
    ],
)
def test_a_damaged_file_is_one_sentence(study: Simulated, damage: Callable[[str], str]) -> None:
    path = study.runner.study.card.with_name("runs.csv")
    path.write_bytes(damage(path.read_text()).encode(errors="surrogateescape"))
    said = r"runs\.csv is damaged near line \d+; restore it from git, or remove it and train the study"
    with pytest.raises(ConfigError, match=said):
        published.read(study.runner.study)


def test_runs_of_other_settings_are_refused(study: Simulated) -> None:
    path = study.runner.study.card.with_name("study.yaml")
    path.write_text(path.read_text().replace("data.val_fraction=0.2]", "data.val_fraction=0.2, train.batch_size=77]"))
    with pytest.raises(ConfigError, match=r"with other settings than study\.yaml declares"):
        published.read(protocol_file.load("simulated"))


def test_fewer_runs_than_are_published_do_not_replace_them(
    study: Simulated, capsys: pytest.CaptureFixture[str]
) -> None:
    study.runner.refresh()
    study.runner.study.card.write_text("<!-- results -->\n<!-- /results -->\n")
    job, _ = published.read(study.runner.study)[0]
    study.records = [study.record(job, peak(job))]
    assert main(["study", "simulated", "--no-training"]) == 2
    said = capsys.readouterr().err
    assert said.startswith(
        "study simulated has 40 published runs, of which its card would lose some, since this store has 1;"
    )


def test_a_run_that_did_not_finish_leaves_the_published_answers(
    study: Simulated, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs/answer.md").write_text("<!-- results -->\n<!-- /results -->\n")
    readme = tmp_path / "README.md"
    readme.write_text("<!-- summary -->\n<!-- /summary -->\n<!-- results -->\n<!-- /results -->\n")
    job, _ = published.read(study.runner.study)[0]
    study.records = [replace(study.record(job, {}), status="KILLED")]
    assert main(["study", "simulated", "--no-training", "--into", str(readme)]) == 0
    assert "1 of 1 claims is confirmed" in readme.read_text()
    said = "simulated: no finished run in this store, so its answers are those of its published runs"
    assert said in capsys.readouterr().out


@pytest.mark.parametrize("other", ["--check", "train.epochs=1"])
def test_published_runs_are_of_the_study_as_it_is_declared(
    study: Simulated, capsys: pytest.CaptureFixture[str], other: str
) -> None:
    assert main(["study", "simulated", other, "--published"]) == 2
    assert capsys.readouterr().err.endswith(f"leave out {other}, or it.\n")


def test_speeds_of_another_processor_are_no_obstacle_where_nothing_is_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = PART.replace("rates: [0.01, 0.02, 0.04]", "rates: [0.01]").replace("[5, 8]", "[5]")
    text = text.replace("margin: 0.1", "margin: 3, endpoint: samples_per_sec")
    text = text.replace("    seconds", "    level: 0.05\n    speed: true\n    beside: 1\n    seconds")
    speeds = lambda job: {"throughput/samples_per_sec": 1000.0 + job.seed * len(job.arm)}  # noqa: E731
    found = Simulated(tmp_path, monkeypatch, text, speeds)
    found.runner.run()
    for record in found.records:
        record.tags["processor"] = "another processor"
    found.runner.run()
    assert found.runner.answer(found.part).decided
    found.records = found.records[1:]
    found.runner.refresh()
    with pytest.raises(ConfigError, match="were measured on another processor"):
        found.runner.run()


def test_a_study_goes_on_from_its_published_runs(study: Simulated) -> None:
    path = study.runner.study.card.with_name("runs.csv")
    *kept, _ = path.read_text().splitlines(keepends=True)
    path.write_text("".join(kept))
    study.runner.study.card.write_text("<!-- results -->\n<!-- /results -->\n")
    before = len(study.batches)
    assert main(["study", "simulated", "--published"]) == 0
    assert [len(batch) for batch in study.batches[before:]] == [1]
    assert len(path.read_text().splitlines()) == len(kept) + 1


@pytest.mark.slow
def test_a_handful_is_trained_again(study: Simulated, capsys: pytest.CaptureFixture[str]) -> None:
    capsys.readouterr()
    assert main(CHECK) == 0
    said = capsys.readouterr().out.splitlines()
    assert len(said) == 3 and all(line.endswith(", equal to the last bit") for line in said)
    first = {(job.arm, job.rate, job.seed) for batch in study.batches[-3:] for job in batch}
    study.records = []
    assert main(["study", "simulated", "--check", "--choice", "1"]) == 0
    assert {(job.arm, job.rate, job.seed) for batch in study.batches[-3:] for job in batch} != first


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kernels", "shift", "code", "said"),
    [
        ("onednn", 1e-9, 1, "NOT equal to the last bit on an equal machine"),
        ("unfold", 0.005, 0, "within 1 points, on a machine that is not known to be equal"),
        ("unfold", 0.02, 1, "NOT within 1 points, on a machine that is not known to be equal"),
    ],
)
def test_what_does_not_come_out_fails_the_check(
    kernels: str, shift: float, code: int, said: str, study: Simulated, capsys: pytest.CaptureFixture[str]
) -> None:
    study.tags["kernels"] = kernels
    study.numbers = lambda job: {name: value + shift for name, value in peak(job).items()}
    assert main([*CHECK, "simulated"]) == code
    assert capsys.readouterr().out.count(said) == 3


@pytest.mark.parametrize(
    ("shift", "said"), [(0.0, ", equal to the last bit"), (0.005, ", within 1 points, on a machi")]
)
def test_a_processor_published_by_its_name_alone_is_held_to_the_points(
    shift: float, said: str, study: Simulated, capsys: pytest.CaptureFixture[str]
) -> None:
    study.tags["processor"] += " (family 25, model 1, AVX2)"
    study.numbers = lambda job: {name: value + shift for name, value in peak(job).items()}
    assert main([*CHECK, "simulated"]) == 0
    assert capsys.readouterr().out.count(said) == 3


def test_no_run_is_no_check(study: Simulated, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        main(["study", "simulated", "--check", "--jobs", "0"])
    assert capsys.readouterr().err.endswith("argument --jobs: 0 is not a whole number from 1 on\n")


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("train.epochs=1", "--check"), "--check trains runs as they were published; leave out train.epochs=1."),
        (("--check", "--into", "README.md"), "--check trains runs as they were published; leave out --into."),
        (("--jobs", "2"), "--jobs and --choice say what --check trains; write --check, or leave them out."),
        (("--dry-run", "--into", "README.md"), "--dry-run writes nothing; leave out --into, or write --no-training"),
    ],
)
def test_an_option_that_would_have_no_effect_is_refused(
    options: tuple[str, ...], said: str, study: Simulated, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["study", "simulated", *options]) == 2
    assert capsys.readouterr().err.startswith(said)


def test_without_published_runs_it_is_refused(study: Simulated, capsys: pytest.CaptureFixture[str]) -> None:
    study.runner.study.card.with_name("runs.csv").unlink()
    assert main(CHECK) == 2 and main([*CHECK, "simulated"]) == 2
    assert capsys.readouterr().err.splitlines() == [
        "no study has published runs yet; train one, for example python -m msaccel study clipping.",
        "study simulated has published no runs; train it: python -m msaccel study simulated.",
    ]
    assert main(["study"]) == 2
    assert capsys.readouterr().err == "which study is meant? Write one of simulated, or all.\n"
