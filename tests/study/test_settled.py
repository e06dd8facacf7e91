"""A part of a study that asks an undecided question again: it counts for the first, which stays in the card."""

from __future__ import annotations

from pathlib import Path

import pytest

from msaccel.errors import ConfigError
from msaccel.study import protocol, protocol_file, results
from msaccel.study.claims import claims
from msaccel.study.jobs import StudyJob
from tests.study.simulated import PART, Simulated, peak

AGAIN = """
  again:
    title: One again
    settles: [one]
    common: [model=mlp, data=synthetic, data.val_fraction=0.2]
    arms:
      plain: [accel=none]
      clipped: [accel=clip]
    rates: [0.02]
    seeds: [8]
    first_seed: 300
    level: 0.02
    hypothesis: {method: clipped, baseline: plain, kind: equivalent, margin: 0.1}
    seconds: 7
"""


def noisy_below_300(job: StudyJob) -> dict[str, float]:
    found = peak(job)
    if job.seed < 300:
        for name in ("final/accuracy", "val/accuracy"):
            found[name] += 0.01 * ((3 * job.seed + 2 * len(job.arm)) % 5 - 2)
    return found


def test_it_counts_for_the_undecided_one_once_it_is_trained(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    study = Simulated(tmp_path, monkeypatch, PART + AGAIN, noisy_below_300)
    assert [one.part.title for one in claims([study.runner])] == ["One", "One again"]
    study.runner.run()
    assert study.runner.answer(study.part).holds is None, "the first is undecided"
    (one,) = claims([study.runner])
    assert one.part.title == "One again" and one.answer.holds and one.answer.estimate.n == (8, 8)
    assert one.looks == 3, "two of the first and one of its own"
    first, second = ("\n".join(results._part(found, study.runner)) for found in results.part_results(study.runner))
    assert "with seeds that this part does not have, in “One again”." in first and "**Hypothesis:**" in first
    assert "this part does not have" not in second


def test_a_question_that_was_decided_keeps_its_answer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    study = Simulated(tmp_path, monkeypatch, PART + AGAIN, peak)
    study.runner.run()
    assert [one.part.title for one in claims([study.runner])] == ["One", "One again"]


@pytest.mark.parametrize(
    ("right", "wrong", "said"),
    [
        ("settles: [one]", "settles: [two]", r"parts\.again: settles=two is no earlier part; write one of one\."),
        ("settles: [one]", "settles: [again]", r"settles=again is no earlier part; write one of one\."),
        ("first_seed: 300", "first_seed: 7", "or seeds of this part; .* first_seed after its seeds"),
        ("method: clipped, baseline: plain", "method: plain, baseline: clipped", "compares other jobs"),
        ("kind: equivalent", "kind: better", "write the same method, baseline and kind"),
        ("val_fraction=0.2", "val_fraction=0.1", "the same overrides in common and arms"),
        ("clipped: [accel=clip]", "clipped: [accel=clip, train.epochs=9]", "the same overrides in common and arms"),
        ("margin: 0.1", "margin: 0.2", "no larger margin"),
    ],
)
def test_what_it_settles_is_checked(
    right: str, wrong: str, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(protocol, "EXPERIMENTS", tmp_path)
    (tmp_path / "one").mkdir()
    (tmp_path / "one/study.yaml").write_text(PART + AGAIN.replace(right, wrong))
    with pytest.raises(ConfigError, match=said):
        protocol_file.load("one")
