"""The whole report as one value: sets, methods, comparisons, verdicts and reservations; `render` only shows it."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from msaccel.compare.baselines import RefusedComparison, pairs, unlike
from msaccel.compare.fairness import SELECTED_ON_TEST, counted, flags, other_machines, rates_tried
from msaccel.compare.groups import ComparisonSet, MethodRuns, group
from msaccel.compare.margins import margins
from msaccel.compare.measures import ACCURACY, FINAL, SPEED, SUCCESS, THROUGHPUT
from msaccel.compare.runs import Record
from msaccel.compare.statistics import LEAST_RUNS
from msaccel.compare.success import diverged, least_accuracy
from msaccel.compare.tuning import tune
from msaccel.compare.verdicts import (
    DOWN,
    FEWER_TRAIN,
    NONE_TRAIN,
    OTHER_MACHINE,
    SIMULATED,
    UNTUNED,
    UP,
    Comparison,
    Question,
    decide,
    doubts,
    estimates,
)
from msaccel.errors import UserError, on_one_line


@dataclass(frozen=True, eq=False)
class Section:
    """One set of a report.

    Attributes:
        title: what its runs have in common, and what tells it from the report's other sets.
        refused: methods that are not compared, and why.
        notes: what else a reader must know.
    """

    title: str
    found: ComparisonSet
    comparisons: list[Comparison]
    refused: list[RefusedComparison]
    notes: list[str]

    @property
    def flags(self) -> list[str]:
        """Every reservation about a pair of the set, each sentence once."""
        return list(dict.fromkeys(flag.sentence for comparison in self.comparisons for flag in comparison.flags))


@dataclass(frozen=True, eq=False)
class Report:
    """Sets that have finished runs, those with a comparison first, and all runs that are not averaged."""

    sections: list[Section]
    unfinished: list[Record] = field(default_factory=list)

    @property
    def runs(self) -> list[Record]:
        return [run for section in self.sections for method in section.found.methods for run in method.runs]


def build(
    records: Sequence[Record], tuned: str | None = None, paired: bool = False, margin: float | None = None
) -> Report:
    """Groups, pairs, tests and judges.

    Args:
        tuned: compare each method at its best value of this key.
        paired: compare runs of the same seed where at least five are on both sides.
        margin: the difference of accuracies that is too small to matter, as a share of 1; None: that of the workload.

    Raises:
        UserError: there is no finished run, or tuning cannot be fair.
    """
    every = group(records)
    sets = [found for found in every if found.methods]
    if not sets:
        missing = counted(records) if records else "none at all"
        raise UserError(f"there is no finished run to compare ({missing}); train one first: python run.py.")
    if tuned is not None and (tuned in ("accel", "seed") or not any(tuned in run.params for run in records)):
        raise UserError(f"--tune={on_one_line(tuned)} is no setting of these runs to tune; write --tune optimizer.lr.")
    sections = []
    errors: dict[MethodRuns, float] = {}
    for original, title in zip(sets, titles(sets), strict=True):
        least = least_accuracy(original.methods)
        found, notes, choices = tune(original, tuned, least) if tuned else (original, [], {})
        errors |= choices
        accepted, refused = pairs(found, sets)
        tried = rates_tried(original)
        comparisons = []
        for pair in accepted:
            if not tuned:  # else its own baseline may be one that does not train
                least = least_accuracy([pair.baseline])
            of_pair = estimates(pair, found.simulated, least, paired, choices)
            reserved = flags(pair, original, tried, of_pair, least, tuned, paired)
            comparisons.append(Comparison(pair, of_pair, {}, reserved))
        sections.append(
            Section(title, found, comparisons, refused, [*notes, *_lost(original), *_notes(found, bool(comparisons))])
        )
    _judge(sections, errors, margin)
    sections.sort(key=lambda section: not section.comparisons)
    return Report(sections, [record for found in every for record in found.unfinished])


def titles(sets: Sequence[ComparisonSet]) -> list[str]:
    """A title for each set; where two would read the same, with the conditions in which they differ."""
    titles = []
    for found in sets:
        alike = [other for other in sets if other is not found and other.title == found.title]
        differing = {key: value for other in alike for _, key, value, _ in unlike(found, other)}
        titles.append(", ".join([found.title, *(f"{key}={value or 'not set'}" for key, value in differing.items())]))
    return titles


def _judge(sections: Sequence[Section], tuned: Mapping[MethodRuns, float], margin: float | None) -> None:
    """Adds the verdicts, and to the notes what an inconclusive comparison could have seen."""
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


def _no_accuracy(section: Section, one: Comparison, tuned: Mapping[MethodRuns, float]) -> str:
    if any(math.isnan(tuned.get(side, 0.0)) for side in one.pair.sides):
        return UNTUNED
    if SUCCESS in one.estimates and FINAL.name not in one.estimates:
        return NONE_TRAIN
    trains = one.verdicts.get(SUCCESS)
    return FEWER_TRAIN if trains and trains.words in (UP[SUCCESS], DOWN[SUCCESS]) else ""


def _no_speed(section: Section, one: Comparison, tuned: Mapping[MethodRuns, float]) -> str:
    return SIMULATED if section.found.simulated else OTHER_MACHINE if other_machines(one.pair) else ""


def _lost(found: ComparisonSet) -> list[str]:
    """Settings at which every run ended because its gradients were not finite: nothing else shows them."""
    shown = {run.run_id for method in found.methods for run in method.unfinished}
    lost = Counter(run.accel for run in found.unfinished if diverged(run) and run.run_id not in shown)
    return [
        f"{many} runs of {accel} ended because their gradients were not finite, at settings at which none finished."
        for accel, many in lost.items()
    ]


def _notes(found: ComparisonSet, compared: bool) -> list[str]:
    notes = []
    smallest = min(len(method.runs) for method in found.methods)
    if smallest < LEAST_RUNS:
        notes.append(f"n = {smallest} is too small to tell a difference from chance; add seeds: seed=0,1,2,3,4.")
    if repeats := sum(method.repeats for method in found.methods):
        notes.append(f"{repeats} further runs repeat the results of others and are not counted.")
    runs = [run for method in found.methods for run in method.runs]
    if not compared and any(run.tags.get("selected_on") == "test" for run in runs):
        notes.append(SELECTED_ON_TEST)
    return notes
