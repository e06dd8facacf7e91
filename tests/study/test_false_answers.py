"""How often a whole study, which tunes both arms and looks up to three times, gives an answer that is wrong."""

from __future__ import annotations

import zlib
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from msaccel.study.jobs import StudyJob
from tests.study.simulated import PART, Simulated

SPREAD = 0.002  # of final accuracies
PEAKED, FLAT = 0.01, 0.001  # what an octave beside the best rate costs: five spreads, or half of one
STUDY = PART.replace("seeds: [5, 8]", "seeds: [10, 20, 40]")
FALSE = 0.055  # the share of wrong answers that is allowed
NOISE = {
    "normal": lambda draw: draw.standard_normal(),
    "skewed": lambda draw: 1 - draw.exponential(),
    "one in ten fails": lambda draw: draw.standard_normal() if draw.random() < 0.9 else -0.85 / SPREAD,
}


def drawn(*key: object) -> np.random.Generator:
    return np.random.default_rng(zlib.crc32(repr(key).encode()))


def run(study: int, noise: str, slope: float, effect: float, job: StudyJob) -> dict[str, float]:
    """Of a study with that number; both arms share a part of what a seed does."""
    own = NOISE[noise](drawn(study, job.arm, job.rate, job.seed)) + drawn(study, job.seed).standard_normal()
    of_validation = drawn(study, job.arm, job.rate, job.seed, "validation").standard_normal()
    level = 0.95 - slope * abs(np.log2(job.rate / 0.02)) + (effect if job.arm == "clipped" else 0.0)
    final = float(level + SPREAD * own)
    return {"final/accuracy": final, "val/accuracy": final + SPREAD * float(of_validation), "epoch": 3.0}


def share(
    folder: Path, patch: pytest.MonkeyPatch, kind: str, noise: str, slope: float, effect: float, studies: int
) -> float:
    """Of studies that ask whether the clipped arm is `kind`: how many see an effect where there is none, or where there
    is one say that it does not matter."""
    margin = 100 * effect or 0.02  # points; of equal arms so few that equivalence ends no study before its last look
    text = STUDY.replace("equivalent", kind).replace("margin: 0.1", f"margin: {margin}")
    study = Simulated(folder, patch, text, partial(run, 0, noise, slope, effect))
    wrong = 0
    for number in range(studies):
        study.records, study.numbers = [], partial(run, number, noise, slope, effect)
        study.runner.refresh()
        study.runner.run()
        answer = study.runner.answer(study.part)
        wrong += answer.verdict.kind == "same" if effect else answer.verdict.kind in ("up", "down")
    return wrong / studies


def most(studies: int) -> float:
    """What the share may be by chance if it is 5.5 %: two standard errors more."""
    return FALSE + 2 * (FALSE * (1 - FALSE) / studies) ** 0.5


@pytest.mark.slow
def test_a_difference_is_seldom_told_of_equal_arms(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert share(tmp_path, monkeypatch, "better", "normal", PEAKED, 0.0, 40) <= most(40)


@pytest.mark.soak
@pytest.mark.timeout(4 * 3600)
@pytest.mark.parametrize("noise", NOISE)
@pytest.mark.parametrize("slope", [PEAKED, FLAT])
@pytest.mark.parametrize(("kind", "effect"), [("better", 0.0), ("equivalent", SPREAD)])
def test_wrong_answers_stay_rare(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, noise: str, slope: float, effect: float
) -> None:
    """That equal arms differ, and that arms which differ by the margin are equivalent."""
    assert share(tmp_path, monkeypatch, kind, noise, slope, effect, 1000) <= most(1000)
