"""The verdicts of a report, from its estimates, corrected for the number of tests.

Five answers: better, worse, equivalent within the margin, different by less than the margin, inconclusive.

Holm's correction runs over the verdicts of one report, for each question by itself (does it train, is it better, is it
faster), and again over its tests of equivalence. A report of one method and one baseline thus keeps its power for each;
in one family of two, an effect of two standard deviations at five runs a side would be found in 62 instead of 77 of 100
reports.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum, unique

from msaccel.compare import statistics
from msaccel.compare.baselines import BaselinePair
from msaccel.compare.fairness import Flag, other_machines
from msaccel.compare.measures import ACCURACY, DIFFERENCE, FINAL, MEASURES, SPEED, SUCCESS, SUPERIORITY, values
from msaccel.compare.method_runs import MethodRuns
from msaccel.compare.statistics import Estimate
from msaccel.compare.success import more_often
from msaccel.compare.superiority import superiority
from msaccel.compare.targets import TargetEstimate
from msaccel.compare.tuning import Choice


@unique
class Verdict(Enum):
    """An answer, or why there is none. The value is its words, with a place for the margin or the reason."""

    BETTER = "better"
    WORSE = "worse"
    FASTER = "faster"
    SLOWER = "slower"
    MORE_OFTEN = "trains more often"
    LESS_OFTEN = "trains less often"
    SUPERIOR = "superior"
    INFERIOR = "inferior"
    EQUIVALENT = "equivalent within ± {}"
    SMALL = "differs by less than {}"
    INCONCLUSIVE = "inconclusive"
    TOO_FEW = "n too small"
    NOT_MEASURED = "not measured"
    NO_SPREAD = "no verdict: nothing varies with the seed"
    SIMULATED = "no verdict: simulated"
    OTHER_MACHINE = "no verdict: other machines"
    UNEQUAL_SHARES = "no verdict: one side trains less often"
    NONE_TRAIN = "no verdict: too few train"
    UNTUNED = "no verdict: tuned on too few seeds"
    # Only of studies:
    NOT_TRAINED = "not trained yet"
    NOT_TUNABLE = "no verdict: {}"
    NARROW = "no verdict: grid too narrow"
    FEW_SEEDS = "no verdict: its best rate lacks seeds"
    OTHER_CONDITIONS = "no verdict: other conditions"

    def words(self, detail: str = "") -> str:
        """How it is said.

        Args:
            detail: the margin or the reason, for those that have a place for it.
        """
        return self.value.format(detail)

    @property
    def kind(self) -> str:
        """The style's class: a gain is `up`, a loss `down`, a difference that does not matter `same`; else empty."""
        if self in (Verdict.EQUIVALENT, Verdict.SMALL):
            return "same"
        return "up" if self in UP.values() else "down" if self in DOWN.values() else ""


# By question.
UP = {ACCURACY: Verdict.BETTER, SPEED: Verdict.FASTER, SUCCESS: Verdict.MORE_OFTEN, SUPERIORITY: Verdict.SUPERIOR}
DOWN = {ACCURACY: Verdict.WORSE, SPEED: Verdict.SLOWER, SUCCESS: Verdict.LESS_OFTEN, SUPERIORITY: Verdict.INFERIOR}
_UNITS = {SPEED: "%", SUPERIORITY: "points of probability"}  # else points


@dataclass(frozen=True)
class Decision:
    """A verdict, and the test behind it.

    Attributes:
        p: Holm's adjusted p: of equivalence if that is the verdict, else of a difference; None if there is no test.
        margin: as it is written, where the verdict names it.
    """

    verdict: Verdict
    p: float | None = None
    margin: str = ""

    @property
    def words(self) -> str:
        return self.verdict.words(self.margin)


@dataclass(frozen=True, eq=False)
class Comparison:
    """A method against its baseline: estimates by the measure's name, verdicts by question, reservations, and times to
    the target by the measure's name."""

    pair: BaselinePair
    estimates: dict[str, Estimate]
    verdicts: dict[str, Decision]
    flags: list[Flag]
    targets: dict[str, TargetEstimate] = field(default_factory=dict)

    @property
    def accuracy(self) -> Decision:
        """The verdict on final accuracy; where a side trains more often, that in its place."""
        found, shares = self.verdicts[ACCURACY], self.verdicts.get(SUCCESS)
        if found.verdict in (Verdict.UNEQUAL_SHARES, Verdict.NONE_TRAIN) and shares and shares.verdict.kind:
            return shares
        return found


@dataclass(frozen=True)
class Question:
    """What is asked about one pair.

    Attributes:
        name: of the question.
        estimate: None where it was not measured.
        margin: None where none is declared; then equivalence is no answer.
        refused: why there is no verdict, where that does not depend on the estimate.
    """

    name: str
    estimate: Estimate | None
    margin: float | None = None
    refused: Verdict | None = None


def estimates(
    pair: BaselinePair, paired: bool = False, tuned: Mapping[MethodRuns, Choice] | None = None
) -> dict[str, Estimate]:
    """Every measure of a pair, over the runs that train; how often they do; and over all runs which side ends above.

    There are no times where the machines of the pair differ.

    Args:
        tuned: what the choice adds to the spread of final accuracies, of methods that were tuned.
    """
    found = {}
    on_others = other_machines(pair)
    for measure in MEASURES:
        if measure.timed and on_others:
            continue
        of_method, of_baseline = values(pair.method, measure), values(pair.baseline, measure)
        compare = statistics.difference if measure.against == DIFFERENCE else statistics.ratio
        estimate = compare(of_method, of_baseline, paired)
        choices = [tuned.get(side) for side in pair.sides] if tuned and measure is FINAL else []
        if estimate and estimate.error and any(choices):
            estimate = _with_choice(estimate, (of_method, of_baseline), choices)
        if estimate:
            found[measure.name] = estimate
    if shares := more_often(pair):
        found[SUCCESS] = shares
    if above := superiority(pair, paired, tuned):
        found[SUPERIORITY] = above
    return found


def _with_choice(
    estimate: Estimate, sides: Sequence[Mapping[int, float]], choices: Sequence[Choice | None]
) -> Estimate:
    """The estimate with standard errors that include the choice; a side without a choice keeps its own."""
    (method, baseline), (of_method, of_baseline) = choices, sides
    if estimate.paired and estimate.error and method and baseline and (error := method.error_of_difference(baseline)):
        error = max(error, estimate.error)  # choosing again takes nothing away
        return replace(statistics.welch(estimate.value, [error], estimate.n), paired=True)
    estimate = statistics.difference(of_method, of_baseline) or estimate
    errors = []
    for side, choice in zip(sides, choices, strict=True):
        of_choice = choice.error if choice else 0.0
        if of_choice is None:
            return replace(estimate, low=None, high=None, p=None, error=None, freedom=None)
        errors.append(max(of_choice, statistics.standard_error(list(side.values()))))
    return statistics.welch(estimate.value, errors, estimate.n) if any(errors) else estimate


def differ_in_share(found: Mapping[str, Estimate]) -> bool:
    """Whether one side trains more often: those of its runs that train are then a biased selection.

    At LEVEL and without a correction for other tests, which would let more pairs be judged as if nothing had failed.
    """
    shares = found.get(SUCCESS)
    return shares is not None and shares.p is not None and shares.p <= statistics.LEVEL


def decide(questions: Sequence[Question]) -> list[Decision]:
    """The verdicts of one question over all pairs of a report."""
    of_difference = statistics.holm([one.estimate.p if one.estimate and not one.refused else None for one in questions])
    of_equivalence = statistics.holm(
        [
            one.estimate.equivalence_p(one.margin) if one.estimate and one.margin and not one.refused else None
            for one in questions
        ]
    )
    return [_verdict(*one) for one in zip(questions, of_difference, of_equivalence, strict=True)]


def _verdict(question: Question, p: float | None, equivalence: float | None) -> Decision:
    estimate = question.estimate
    if question.refused:
        return Decision(question.refused)
    if estimate is None:
        return Decision(Verdict.NOT_MEASURED)
    if min(estimate.n) < statistics.MIN_RUNS:
        return Decision(Verdict.TOO_FEW)
    if p is None:
        return Decision(Verdict.NO_SPREAD)
    differs = p <= statistics.LEVEL
    if question.margin and equivalence is not None and equivalence <= statistics.LEVEL:
        small = Verdict.SMALL if differs else Verdict.EQUIVALENT
        return Decision(small, equivalence, format_margin(question.name, question.margin))
    if differs:
        return Decision((UP if estimate.value > estimate.nothing else DOWN)[question.name], p)
    return Decision(Verdict.INCONCLUSIVE, p)


def doubts(pair: BaselinePair, question: Question, decision: Decision) -> Iterator[str]:
    """What an inconclusive comparison could have detected, and what it would take to decide."""
    estimate = question.estimate
    visible = estimate.visible() if estimate else None
    if decision.verdict is not Verdict.INCONCLUSIVE or estimate is None or visible is None:
        return
    said = f"{question.name} of {pair.method.label} ({pair.name}) is inconclusive: n = {min(estimate.n)} shows "
    said += f"{format_margin(question.name, two_digits(visible))} or more in 8 of 10 studies"
    if question.margin:
        runs = estimate.needed(question.margin)
        many = f"about n = {runs}" if runs else f"more than n = {statistics.MAX_RUNS}"
        said += f"; to decide within {format_margin(question.name, question.margin, sign=True)} takes {many} a side"
    yield f"{said}."


def format_margin(question: str, amount: float, sign: bool = False) -> str:
    """A margin or an effect in the unit of its question: `0.1 points`, `± 3 %`."""
    return f"{'± ' if sign else ''}{float(f'{100 * amount:.4g}'):g} {_UNITS.get(question, 'points')}"


def two_digits(effect: float) -> float:
    """An effect that is only known roughly."""
    return float(f"{effect:.2g}")
