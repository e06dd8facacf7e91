"""The answer to the hypothesis of a part, from the runs of its two arms, and whether its controls passed."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from msaccel.compare.baselines import BaselinePair
from msaccel.compare.fairness import other_machines
from msaccel.compare.groups import group
from msaccel.compare.measures import ACCURACY, FINAL, SUCCESS, SUPERIORITY, THROUGHPUT
from msaccel.compare.method_runs import MethodRuns, diverged
from msaccel.compare.render import format
from msaccel.compare.runs import Record
from msaccel.compare.statistics import LEVEL, Estimate, difference
from msaccel.compare.tuning import RATE, Choice, tune
from msaccel.compare.verdicts import DOWN, UP, Verdict, differ_in_share, estimates, format_margin
from msaccel.errors import UserError
from msaccel.study.protocol import BETTER, ENDPOINTS, TRAINS, Hypothesis, StudyPart


@dataclass(frozen=True)
class Answer:
    """What the runs say so far.

    Attributes:
        holds: whether the hypothesis is confirmed (True) or refuted (False); None while it is undecided.
        perhaps_inside: whether a difference was found that is not shown to be beyond the margin.
        estimate: of the hypothesis's endpoint.
        pair: the runs of method and baseline; None while a side has none.
        every: estimates of all that was measured, by the measure's name.
        detail: the margin, as it is written, or why the rates could not be chosen.
        level: that of the tests.
    """

    verdict: Verdict
    holds: bool | None = None
    estimate: Estimate | None = None
    pair: BaselinePair | None = None
    every: Mapping[str, Estimate] = field(default_factory=dict)
    detail: str = ""
    level: float = LEVEL
    perhaps_inside: bool = False

    @property
    def words(self) -> str:
        return self.verdict.words(self.detail)

    @property
    def decided(self) -> bool:
        return self.holds is not None

    @property
    def rates(self) -> tuple[float, ...]:
        """The rates of method and baseline."""
        return tuple(side.number(RATE) or 0.0 for side in self.pair.sides) if self.pair else ()


def answer(
    part: StudyPart, grids: Mapping[str, Sequence[float]], method: Collection[Record], baseline: Collection[Record]
) -> Answer:
    """Answers the hypothesis of a part.

    Args:
        grids: the rates of each arm.
        method, baseline: the runs of its two arms.
    """
    hypothesis = part.hypothesis
    assert hypothesis
    if not (method and baseline):
        return Answer(Verdict.NOT_TRAINED)
    sets = [found for found in group([*method, *baseline], across_budgets=True) if found.methods]
    if len(sets) > 1:
        return Answer(Verdict.OTHER_CONDITIONS)
    if not sets:
        return Answer(Verdict.NONE_TRAIN)
    found, choices = sets[0], dict[MethodRuns, Choice]()
    if part.tuned:
        try:
            found, _, choices = tune(found, RATE, same_values=not part.own_rates)
        except UserError as error:
            return Answer(Verdict.NOT_TUNABLE, detail=str(error).removesuffix("."))
    of_method, of_baseline = (
        [one for one in found.methods if one.known[0] in side and hypothesis.rate in (None, one.number(RATE))]
        for side in (method, baseline)
    )
    if not of_method or not of_baseline:
        return Answer(Verdict.NONE_TRAIN)
    pair = BaselinePair(of_method[0], of_baseline[0], "declared", ())
    if any(side in choices and choices[side].means is None for side in pair.sides):
        return Answer(Verdict.UNTUNED, pair=pair)
    if min(side.attempts for side in pair.sides) < part.seeds[0]:
        return Answer(Verdict.FEW_SEEDS, pair=pair)
    if part.tuned:
        for arm, side in zip((hypothesis.method, hypothesis.baseline), pair.sides, strict=True):
            if side.number(RATE) in (grids[arm][0], grids[arm][-1]):
                return Answer(Verdict.NARROW, pair=pair)
    if hypothesis.endpoint == THROUGHPUT.name and other_machines(pair):
        return Answer(Verdict.OTHER_MACHINE, pair=pair)
    every = estimates(pair, paired=True, tuned=choices)
    if hypothesis.endpoint not in (TRAINS, SUPERIORITY) and differ_in_share(every):
        return Answer(Verdict.UNEQUAL_SHARES, None, None, pair, every, level=part.level)
    estimate = every.get(SUCCESS if hypothesis.endpoint == TRAINS else hypothesis.endpoint)
    margin = format_margin(ENDPOINTS[hypothesis.endpoint], hypothesis.margin / 100)
    verdict, holds, perhaps_inside = _decided(part, hypothesis, estimate)
    return Answer(verdict, holds, estimate, pair, every, margin, part.level, perhaps_inside)


def _decided(part: StudyPart, hypothesis: Hypothesis, estimate: Estimate | None) -> tuple[Verdict, bool | None, bool]:
    """The verdict, whether it confirms or refutes the hypothesis (None for neither), and `perhaps_inside`."""
    if estimate is None or estimate.p is None:
        return Verdict.INCONCLUSIVE, None, False
    equivalence = estimate.equivalence_p(hypothesis.margin / 100)
    differs = estimate.p <= part.level
    if equivalence is not None and equivalence <= part.level:
        return Verdict.SMALL if differs else Verdict.EQUIVALENT, hypothesis.kind != BETTER, False
    if not differs:
        return Verdict.INCONCLUSIVE, None, False
    up = estimate.value > estimate.nothing
    verdict = (UP if up else DOWN)[ENDPOINTS[hypothesis.endpoint]]
    is_beyond = _is_beyond(estimate, hypothesis.margin / 100, part.level)
    if hypothesis.kind == BETTER:
        return verdict, up, not is_beyond
    # A difference refutes equivalence only once it is shown to be beyond the margin; more seeds may show it inside.
    return verdict, False if is_beyond else None, not is_beyond


def _is_beyond(estimate: Estimate, margin: float, level: float) -> bool:
    """Whether a difference is shown to be larger than the margin."""
    inside = estimate.equivalence_p(margin)
    if inside is not None and inside < 1 - level:
        return False
    if inside is not None and not estimate.is_probability:
        return True
    if estimate.low is None or estimate.high is None:
        return False
    # A difference of shares has no error, and the interval of a probability may be wider than its error says.
    low, high = (estimate.in_margins(end, margin) for end in (estimate.low, estimate.high))
    return low > 1 or high < -1


def controlled(
    part: StudyPart, baseline: Collection[Record], planted: Collection[Record], again: Collection[Record]
) -> str:
    """Whether the controls of a part passed, as a sentence.

    Args:
        baseline, planted, again: runs of the baseline: at its best rate, at the planted one, and with other seeds.
    """
    worse = difference(_finals(planted), _finals(baseline))
    same = difference(_finals(again), _finals(baseline))
    found = worse is not None and worse.p is not None and worse.p <= part.level and worse.value < 0
    return (
        f"**Controls:** the planted effect was {'found' if found else 'NOT found'} ({format.estimate(worse)}); the "
        f"baseline with other seeds {_beside_itself(part, same)} ({format.estimate(same)})."
    )


def _beside_itself(part: StudyPart, same: Estimate | None) -> str:
    if same is None or same.p is None or part.margin is None:
        return "was not measured"
    within, inside = format_margin(ACCURACY, part.margin, sign=True), same.equivalence_p(part.margin)
    if inside is not None and inside <= part.level:
        return f"equals itself within {within}"
    if same.p <= part.level:
        return "DIFFERS from itself"
    return f"does not differ from itself, but {part.seeds[0]} seeds do not show that it equals itself within {within}"


def _finals(runs: Collection[Record]) -> dict[int, float]:
    finals = {run.seed: 0.0 if diverged(run) else FINAL.read(run) for run in runs}
    return {seed: value for seed, value in finals.items() if value is not None}
