"""Published runs are small, are read back, and are trained again: equal, near, or not what was published."""

from __future__ import annotations

from pathlib import Path

import pytest

from msaccel.__main__ import main
from msaccel.study import published
from msaccel.study.jobs import StudyJob
from tests.study.simulated import PART, Simulated, peak

CHECK = ["study", "--check", "--jobs", "3"]


@pytest.fixture
def study(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Simulated:
    """One that was trained and published; the runs of a check start from none."""
    found = Simulated(tmp_path, monkeypatch, PART, peak)
    found.runner.run()
    published.publish(found.runner)
    found.records = []
    return found


def test_it_is_read_as_it_was_written(study: Simulated) -> None:
    runs = published.read(study.runner.study)
    assert len(runs) == len(study.trained()) and len({run.digest for run in runs}) > 10
    assert {(run.arm, run.rate, run.seed) for run in runs} == study.trained()
    assert all(run.accuracy == peak(StudyJob(run.arm, run.rate, run.seed, ()))["final/accuracy"] for run in runs)
    assert (study.runner.study.card.parent / "runs.json").stat().st_size < 100 * len(runs)


def test_a_handful_is_trained_again(study: Simulated, capsys: pytest.CaptureFixture[str]) -> None:
    capsys.readouterr()
    assert main(CHECK) == 0
    said = capsys.readouterr().out.splitlines()
    assert len(said) == 3 and all(line.endswith(", equal to the last bit") for line in said)
    first = {(job.arm, job.rate, job.seed) for batch in study.batches[-3:] for job in batch}
    study.records = []
    assert main(["study", "simulated", "--check", "--choice", "1"]) == 0
    assert {(job.arm, job.rate, job.seed) for batch in study.batches[-3:] for job in batch} != first


@pytest.mark.parametrize(
    ("kernels", "shift", "code", "said"),
    [
        ("onednn", 1e-9, 1, "NOT equal to the last bit on an equal machine"),
        ("unfold", 0.005, 0, "within 1 points, on another processor or kernels"),
        ("unfold", 0.02, 1, "NOT within 1 points, on another processor or kernels"),
    ],
)
def test_what_does_not_come_out_fails_the_check(
    kernels: str, shift: float, code: int, said: str, study: Simulated, capsys: pytest.CaptureFixture[str]
) -> None:
    study.tags["kernels"] = kernels
    study.numbers = lambda job: {name: value + shift for name, value in peak(job).items()}
    assert main([*CHECK, "simulated"]) == code
    assert capsys.readouterr().out.count(said) == 3


def test_no_run_is_no_check(study: Simulated, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["study", "simulated", "--check", "--jobs", "0"]) == 2
    assert capsys.readouterr().err == "--jobs=0 checks nothing; write 1 or more.\n"


def test_without_published_runs_it_is_refused(study: Simulated, capsys: pytest.CaptureFixture[str]) -> None:
    study.runner.study.card.with_name("runs.json").unlink()
    assert main(CHECK) == 2 and main([*CHECK, "simulated"]) == 2
    assert capsys.readouterr().err.splitlines() == [
        "no study has published runs yet; train one, for example python -m msaccel study clipping.",
        "study simulated has published no runs; train it: python -m msaccel study simulated.",
    ]
    assert main(["study"]) == 2
    assert capsys.readouterr().err == "which study is meant? Write one of simulated, or all.\n"
