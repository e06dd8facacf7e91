"""The whole report as one value: sets, methods, comparisons, verdicts and reservations; `render` only shows it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from msaccel.compare.advice import BATCH
from msaccel.compare.baselines import RefusedComparison, pairs, without_baseline
from msaccel.compare.fairness import SELECTED_ON_TEST, flags, other_machines
from msaccel.compare.groups import ComparisonSet, group, unlike
from msaccel.compare.margins import margins
from msaccel.compare.measures import ACCURACY, FINAL, MEASURES, SPEED, SUCCESS, THROUGHPUT
from msaccel.compare.method_runs import MethodRuns, counted
from msaccel.compare.rate_curves import RateCurve, rate_curves
from msaccel.compare.runs import Record
from msaccel.compare.statistics import MIN_RUNS
from msaccel.compare.targets import adjust, compare_times
from msaccel.compare.tuning import RATE, Choice, families, rates_tried, tune
from msaccel.compare.verdicts import Comparison, Question, Verdict, decide, differ_in_share, doubts, estimates
from msaccel.compare.workloads import OverWorkloads, over_workloads
from msaccel.errors import UserError, on_one_line

_NEVER_TUNED = ("accel", "seed", "loss_scale.mode")  # which decide what is a method and what its baseline


@dataclass(frozen=True, eq=False)
class Section:
    """One set of a report.

    Attributes:
        title: what its runs have in common, and what distinguishes it from the report's other sets.
        refused: methods that are not compared, and why.
        notes: what else a reader must know.
        rates: a curve of each method that was tried at several rates, where these were chosen.
    """

    title: str
    found: ComparisonSet
    comparisons: list[Comparison]
    refused: list[RefusedComparison]
    notes: list[str]
    rates: list[RateCurve] = field(default_factory=list)

    @property
    def flags(self) -> list[str]:
        """Every reservation about a pair of the set, each sentence once."""
        return list(dict.fromkeys(flag.sentence for comparison in self.comparisons for flag in comparison.flags))

    @property
    def intervals(self) -> str:
        """What kind of intervals the set has; a comparison that could not be paired has a flag that says so."""
        shown = [one.estimates.get(measure.name) for one in self.comparisons for measure in MEASURES]
        return "pairs of the same seed" if any(estimate and estimate.paired for estimate in shown) else "Welch"


@dataclass(frozen=True, eq=False)
class Report:
    """Sets that have finished runs, those with a comparison first, all runs that are not averaged, and the methods that
    several workloads have."""

    sections: list[Section]
    unfinished: list[Record] = field(default_factory=list)
    workloads: list[OverWorkloads] = field(default_factory=list)

    @property
    def runs(self) -> list[Record]:
        return [run for section in self.sections for run in section.found.runs]


def build(
    records: Sequence[Record],
    tuned: str | None = None,
    paired: bool = False,
    margin: float | None = None,
    declared: bool = False,
    same_values: bool = True,
    store: Sequence[str] = (),
) -> Report:
    """Groups, pairs, tests and judges.

    Args:
        tuned: compare each method at its best value of this key.
        paired: compare runs of the same seed where at least five are on both sides.
        margin: the difference of accuracies that is too small to matter, as a share of 1; None: that of the workload.
        declared: a study says which arms it compares, so they may differ in their budget and settings, and none lacks a
            baseline.
        same_values: as of `tune`.
        store: overrides that name the store in the commands of the report, where it is not the default one.

    Raises:
        UserError: there is no finished run, or tuning cannot be fair.
    """
    every = group(records, across_budgets=declared)
    sets = [found for found in every if found.runs]
    if not sets:
        missing = counted(records) if records else "none at all"
        raise UserError(f"there is no finished run to compare ({missing}); train one first: python run.py.")
    if tuned is not None and (tuned in _NEVER_TUNED or not any(tuned in run.params for run in records)):
        raise UserError(f"--tune={on_one_line(tuned)} is no setting of these runs to tune; write --tune optimizer.lr.")
    if tuned == BATCH:
        raise UserError(
            f"--tune={BATCH} would pair methods whose batches differ, and none of them is a baseline of another; "
            "write --tune optimizer.lr, and compare the methods at each batch."
        )
    sections = []
    every_choice: dict[MethodRuns, Choice] = {}
    for original, title in zip(sets, titles(sets), strict=True):
        found, notes, choices = tune(original, tuned, same_values) if tuned else (original, [], {})
        every_choice |= choices
        accepted = pairs(found)
        others = [one for one in sets if one is not original]
        refused = [] if declared else without_baseline(found, accepted, others, store)
        tried = rates_tried(original)
        comparisons = []
        for pair in accepted:
            of_pair = estimates(pair, paired, choices)
            reserved = flags(pair, original, tried, of_pair, tuned, paired, declared, store)
            comparisons.append(Comparison(pair, of_pair, {}, reserved, compare_times(pair)))
        curves = rate_curves(original, found, RATE) if tuned == RATE else []
        notes += _notes(found, bool(comparisons))
        sections.append(Section(title, found, comparisons, refused, notes, curves))
    if tuned and not declared and not any(len(family) > 1 for found in sets for family in families(found, tuned)):
        raise UserError(
            f"--tune={on_one_line(tuned)} has nothing to choose: in each set of runs that can be compared every method "
            "has one value of it; leave it out, or train more values."
        )
    _judge(sections, every_choice, margin)
    adjust(one.targets for section in sections for one in section.comparisons)
    sections.sort(key=lambda section: not section.comparisons)
    of_sections = [(section.title, section.found, section.comparisons) for section in sections]
    workloads = over_workloads(of_sections, paired, every_choice)
    return Report(sections, [record for found in every for record in found.unfinished], workloads)


def titles(sets: Sequence[ComparisonSet]) -> list[str]:
    """A title for each set; where two would read the same, with the conditions in which they differ."""
    titles = []
    for found in sets:
        alike = [other for other in sets if other is not found and other.title == found.title]
        differing = {key: value for other in alike for _, key, value, _ in unlike(found.conditions, other.conditions)}
        titles.append(", ".join([found.title, *(f"{key}={value or 'not set'}" for key, value in differing.items())]))
    return titles


def _judge(sections: Sequence[Section], tuned: Mapping[MethodRuns, Choice], margin: float | None) -> None:
    """Adds the verdicts, and a note on what an inconclusive comparison could have detected."""
    every = [(section, one, margins(section.found, margin)) for section in sections for one in section.comparisons]
    shares = [(one, Question(SUCCESS, one.estimates[SUCCESS])) for _, one, _ in every if SUCCESS in one.estimates]
    for (one, _), verdict in zip(shares, decide([question for _, question in shares]), strict=True):
        one.verdicts[SUCCESS] = verdict
    for name, measure, refused in ((ACCURACY, FINAL, _no_accuracy), (SPEED, THROUGHPUT, _no_speed)):
        questions = [
            Question(name, one.estimates.get(measure.name), margin.get(name), refused(section, one, tuned))
            for section, one, margin in every
        ]
        for (section, one, _), question, verdict in zip(every, questions, decide(questions), strict=True):
            one.verdicts[name] = verdict
            section.notes.extend(doubts(one.pair, question, verdict))


def _no_accuracy(section: Section, one: Comparison, tuned: Mapping[MethodRuns, Choice]) -> Verdict | None:
    if any(side in tuned and tuned[side].means is None for side in one.pair.sides):
        return Verdict.UNTUNED
    if not all(side.trained for side in one.pair.sides):
        return Verdict.NONE_TRAIN
    return Verdict.UNEQUAL_SHARES if differ_in_share(one.estimates) else None


def _no_speed(section: Section, one: Comparison, tuned: Mapping[MethodRuns, Choice]) -> Verdict | None:
    if section.found.simulated:
        return Verdict.SIMULATED
    if other_machines(one.pair):
        return Verdict.OTHER_MACHINE
    return None if all(side.trained for side in one.pair.sides) else Verdict.NONE_TRAIN


def _notes(found: ComparisonSet, compared: bool) -> list[str]:
    notes = []
    smallest = min(method.attempts for method in found.methods)
    if smallest < MIN_RUNS:
        notes.append(f"n = {smallest} is too small to tell a difference from chance; add seeds: seed=0,1,2,3,4.")
    (least,) = {method.least for method in found.methods}
    if least is not None and any(len(method.trained) < method.attempts for method in found.methods):
        of_these = f"at least {least:.1%}" if least else "a number"
        notes.append(f"Not every run trains: numbers are of those that do, whose final accuracy is {of_these}.")
    if repeats := sum(method.repeats for method in found.methods):
        notes.append(f"{repeats} further runs repeat the results of others and are not counted.")
    if not compared and any(run.tags.get("selected_on") == "test" for run in found.runs):
        notes.append(SELECTED_ON_TEST)
    return notes
