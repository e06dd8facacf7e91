"""The answer to the hypothesis of a part, from the runs of its two arms, and whether the controls came out."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from msaccel.compare.baselines import BaselinePair
from msaccel.compare.fairness import other_machines
from msaccel.compare.groups import group
from msaccel.compare.measures import FINAL, SUCCESS, THROUGHPUT
from msaccel.compare.method_runs import MethodRuns, diverged
from msaccel.compare.render import format
from msaccel.compare.runs import Record
from msaccel.compare.statistics import Estimate, difference
from msaccel.compare.tuning import tune
from msaccel.compare.verdicts import (
    DOWN,
    EQUIVALENT,
    FEWER_TRAIN,
    INCONCLUSIVE,
    NONE_TRAIN,
    OTHER_MACHINE,
    SMALL,
    UNTUNED,
    UP,
    estimates,
    written,
)
from msaccel.errors import UserError
from msaccel.study.jobs import RATE
from msaccel.study.protocol import BETTER, ENDPOINTS, TRAINS, Hypothesis, StudyPart
from msaccel.tracking.status import FINISHED

NARROW = "no verdict: grid too narrow"
FEW_SEEDS = "no verdict: its best rate lacks seeds"
OTHER_CONDITIONS = "no verdict: other conditions"


@dataclass(frozen=True)
class Answer:
    """What the runs say so far.

    Attributes:
        words: better, worse, …, equivalent within ± the margin, inconclusive; or why there is no verdict.
        holds: whether that is what the hypothesis says; None where it says neither.
        rates: of method and baseline.
    """

    words: str
    holds: bool | None = None
    estimate: Estimate | None = None
    rates: tuple[float, ...] = ()

    @property
    def decided(self) -> bool:
        return self.holds is not None


def answer(part: StudyPart, grid: Sequence[float], method: Collection[Record], baseline: Collection[Record]) -> Answer:
    """Answers the hypothesis of a part.

    Args:
        grid: the rates of every arm.
        method, baseline: the runs of its two arms.
    """
    hypothesis = part.hypothesis
    assert hypothesis
    sets = [found for found in group([*method, *baseline]) if found.methods]
    if len(sets) > 1:
        return Answer(OTHER_CONDITIONS)
    if not sets:
        return Answer(NONE_TRAIN)
    found, choices = sets[0], dict[MethodRuns, float]()
    if part.tuned:
        try:
            found, _, choices = tune(found, RATE)
        except UserError as error:
            return Answer(f"no verdict: {error}")
    of_method, of_baseline = (
        [one for one in found.methods if one.known[0] in side and _is_at_rate(hypothesis, one)]
        for side in (method, baseline)
    )
    if not of_method or not of_baseline:
        return Answer(NONE_TRAIN)
    pair = BaselinePair(of_method[0], of_baseline[0], "declared", ())
    rates = tuple(side.number(RATE) or 0.0 for side in pair.sides)
    if any(math.isnan(choices.get(side, 0.0)) for side in pair.sides):
        return Answer(UNTUNED, rates=rates)
    if min(side.attempts for side in pair.sides) < part.seeds[0]:
        return Answer(FEW_SEEDS, rates=rates)
    if part.tuned and {grid[0], grid[-1]} & set(rates):
        return Answer(NARROW, rates=rates)
    if hypothesis.endpoint == THROUGHPUT.name and other_machines(pair):
        return Answer(OTHER_MACHINE, rates=rates)
    every = estimates(pair, found.simulated, part.speed, choices)
    shares = every.get(SUCCESS)
    if hypothesis.endpoint == TRAINS:
        return _decided(part, hypothesis, shares, rates)
    if shares and shares.p is not None and shares.p <= part.level:
        return Answer(FEWER_TRAIN, rates=rates)
    return _decided(part, hypothesis, every.get(hypothesis.endpoint), rates)


def _is_at_rate(hypothesis: Hypothesis, method: MethodRuns) -> bool:
    return hypothesis.rate is None or method.number(RATE) == hypothesis.rate


def _decided(part: StudyPart, hypothesis: Hypothesis, estimate: Estimate | None, rates: tuple[float, ...]) -> Answer:
    if estimate is None or estimate.p is None:
        return Answer(INCONCLUSIVE, None, estimate, rates)
    question, margin = ENDPOINTS[hypothesis.endpoint], hypothesis.margin / 100
    equivalence = estimate.equivalence_p(margin)
    differs = estimate.p <= part.level
    if equivalence is not None and equivalence <= part.level:
        words = (SMALL if differs else EQUIVALENT).format(written(question, margin, sign=not differs))
        return Answer(words, hypothesis.kind != BETTER, estimate, rates)
    if not differs:
        return Answer(INCONCLUSIVE, None, estimate, rates)
    up = estimate.value > estimate.nothing
    words = (UP if up else DOWN)[question]
    if hypothesis.kind == BETTER:
        return Answer(words, up, estimate, rates)
    # A difference refutes equivalence only once it is shown to be beyond the margin; more seeds may show it inside.
    is_beyond = equivalence is not None and equivalence >= 1 - part.level
    return Answer(words, False if is_beyond else None, estimate, rates)


def verdict(part: StudyPart, given: Answer) -> str:
    """The answer as a sentence, which says what was to be shown."""
    hypothesis = part.hypothesis
    assert hypothesis
    question = ENDPOINTS[hypothesis.endpoint]
    margin = written(question, hypothesis.margin / 100, sign=True)
    claim = f"{hypothesis.method} is {hypothesis.kind}{'' if hypothesis.kind == BETTER else f' within {margin}'}"
    at = f", both at {hypothesis.rate:g}" if hypothesis.rate else ""
    result = {True: "holds", False: "does not hold", None: "is not decided"}[given.holds]
    n = f", n = {' and '.join(map(str, given.estimate.n))}" if given.estimate else ""
    rates = (
        f", rates {' and '.join(f'{rate:g}' for rate in given.rates)}" if given.rates and not hypothesis.rate else ""
    )
    return (
        f"**Hypothesis** ({hypothesis.endpoint}{at}): {claim}, compared with {hypothesis.baseline}. **It {result}:** "
        f"{given.words}, {format.estimate(given.estimate)}{n}{rates}; looks at n = "
        f"{', '.join(map(str, part.seeds))}, each at {part.level:.0%}. "
        "All else in this part is descriptive."
    )


def controlled(
    level: float, baseline: Collection[Record], planted: Collection[Record], again: Collection[Record]
) -> str:
    """Whether the controls came out, as a sentence."""
    worse = difference(_finals(planted), _finals(baseline))
    same = difference(_finals(again), _finals(baseline))
    found = worse is not None and worse.p is not None and worse.p <= level and worse.value < 0
    if same is None or same.p is None:
        again_says = "was not measured"
    else:
        again_says = "does not differ from itself" if same.p > level else "DIFFERS from itself"
    return (
        f"**Controls:** the planted effect was {'found' if found else 'NOT found'} ({format.estimate(worse)}); the "
        f"baseline with other seeds {again_says} ({format.estimate(same)})."
    )


def _finals(runs: Collection[Record]) -> dict[int, float]:
    finals = {
        run.seed: 0.0 if diverged(run) else FINAL.read(run) for run in runs if run.status == FINISHED or diverged(run)
    }
    return {seed: value for seed, value in finals.items() if value is not None}
