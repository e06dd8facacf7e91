"""The verdicts of a report, from its estimates, corrected for the number of tests.

Holm's correction runs over the verdicts of one report, for each question by itself: is the method better, is it faster.
A report of one method and one baseline thus keeps its power for both; in one family of two, an effect of two standard
deviations at five runs a side would be found in 62 instead of 77 of 100 reports.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from msaccel.compare import statistics
from msaccel.compare.baselines import BaselinePair
from msaccel.compare.fairness import Flag
from msaccel.compare.measures import ACCURACY, DIFFERENCE, MEASURES, SPEED, TARGETS, Measure, values
from msaccel.compare.statistics import Estimate

UP = {ACCURACY: "better", SPEED: "faster"}
DOWN = {ACCURACY: "worse", SPEED: "slower"}
NOTHING = "no difference shown"
TOO_FEW = "n too small"
NO_SPREAD = "no verdict: the runs of each side are all equal"
SIMULATED = "no verdict: simulated"
NOT_MEASURED = "not measured"


@dataclass(frozen=True)
class Verdict:
    """One answer.

    Attributes:
        words: better, worse, faster, slower, no difference shown, n too small, or why there is no verdict.
        p: Holm's adjusted p; None where no test could be made.
    """

    words: str
    p: float | None = None


@dataclass(frozen=True, eq=False)
class Comparison:
    """A method against its baseline: estimates by the measure's name, verdicts by question, and reservations."""

    pair: BaselinePair
    estimates: dict[str, Estimate]
    verdicts: dict[str, Verdict]
    flags: list[Flag]


def estimates(pair: BaselinePair, simulated: bool, paired: bool = False) -> dict[str, Estimate]:
    """Every measure of a pair; no times where ranks are simulated, none to a target that some runs never reached."""
    found = {}
    for measure in MEASURES:
        of_method, of_baseline = values(pair.method, measure), values(pair.baseline, measure)
        missed = len(of_method) < len(pair.method.runs) or len(of_baseline) < len(pair.baseline.runs)
        if (measure.timed and simulated) or (measure in TARGETS and missed):
            continue
        compare = statistics.difference if measure.against == DIFFERENCE else statistics.ratio
        estimate = compare(of_method, of_baseline, paired)
        if estimate:
            found[measure.name] = estimate
    return found


def decide(questions: Sequence[tuple[Measure, Estimate | None, bool]]) -> list[Verdict]:
    """The verdicts of one question over all pairs of a report.

    Args:
        questions: for each pair the measure, its estimate, and whether its ranks are simulated.
    """
    raw = {place: one.p for place, (_, one, _) in enumerate(questions) if one and one.p is not None}
    adjusted = dict(zip(raw, statistics.holm(list(raw.values())), strict=True))
    return [_verdict(*one, adjusted.get(place)) for place, one in enumerate(questions)]


def _verdict(measure: Measure, estimate: Estimate | None, simulated: bool, p: float | None) -> Verdict:
    if measure.timed and simulated:
        return Verdict(SIMULATED)
    if estimate is None:
        return Verdict(NOT_MEASURED)
    if min(estimate.n) < statistics.LEAST_RUNS:
        return Verdict(TOO_FEW)
    if p is None:
        return Verdict(NO_SPREAD)
    if p > statistics.LEVEL:
        return Verdict(NOTHING, p)
    words = UP if estimate.value > estimate.nothing else DOWN
    return Verdict(words[measure.question or ACCURACY], p)
