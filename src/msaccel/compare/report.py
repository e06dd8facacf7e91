"""The whole report as one value: sets, methods, comparisons, verdicts and reservations; `render` only shows it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from msaccel.compare.baselines import RefusedComparison, pairs, unlike
from msaccel.compare.fairness import SELECTED_ON_TEST, counted, flags, rates_tried
from msaccel.compare.groups import ComparisonSet, group
from msaccel.compare.measures import MEASURES
from msaccel.compare.runs import Record
from msaccel.compare.statistics import LEAST_RUNS
from msaccel.compare.tuning import tune
from msaccel.compare.verdicts import Comparison, decide, estimates
from msaccel.errors import UserError


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


def build(records: Sequence[Record], tuned: str | None = None, paired: bool = False) -> Report:
    """Groups, pairs, tests and judges.

    Args:
        tuned: compare each method at its best value of this key.
        paired: compare runs of the same seed where at least five are on both sides.

    Raises:
        UserError: there is no finished run, or tuning cannot be fair.
    """
    every = group(records)
    sets = [found for found in every if found.methods]
    if not sets:
        missing = counted(records) if records else "none at all"
        raise UserError(f"there is no finished run to compare ({missing}); train one first: python run.py.")
    sections = []
    for original, title in zip(sets, titles(sets), strict=True):
        found, notes = tune(original, tuned) if tuned else (original, [])
        accepted, refused = pairs(found, sets)
        tried = rates_tried(original)
        comparisons = [
            Comparison(pair, estimates(pair, found.simulated, paired), {}, flags(pair, original, tried, tuned))
            for pair in accepted
        ]
        sections.append(Section(title, found, comparisons, refused, [*notes, *_notes(found, bool(comparisons))]))
    _judge(sections)
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


def _judge(sections: Sequence[Section]) -> None:
    for measure in MEASURES:
        if measure.question:
            every = [(one, section.found.simulated) for section in sections for one in section.comparisons]
            questions = [(measure, one.estimates.get(measure.name), simulated) for one, simulated in every]
            for (one, _), verdict in zip(every, decide(questions), strict=True):
                one.verdicts[measure.question] = verdict


def _notes(found: ComparisonSet, compared: bool) -> list[str]:
    notes = []
    smallest = min(len(method.runs) for method in found.methods)
    if smallest < LEAST_RUNS:
        notes.append(f"n = {smallest} is too small to tell a difference from chance; add seeds: seed=0,1,2,3,4.")
    if repeats := sum(method.repeats for method in found.methods):
        notes.append(f"{repeats} further runs repeat a seed with the same settings and are not counted.")
    runs = [run for method in found.methods for run in method.runs]
    if not compared and any(run.tags.get("selected_on") == "test" for run in runs):
        notes.append(SELECTED_ON_TEST)
    return notes
