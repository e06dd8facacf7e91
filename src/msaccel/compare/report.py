"""The whole answer as one value: sets, methods, pairs, verdicts and reservations; the writers only show it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from msaccel.compare.baselines import Refusal, pairs, unlike
from msaccel.compare.fairness import SELECTED_ON_TEST, counted, flags, rates_tried
from msaccel.compare.groups import ComparisonSet, group
from msaccel.compare.measures import MEASURES
from msaccel.compare.runs import Record
from msaccel.compare.statistics import LEAST_RUNS
from msaccel.compare.tuning import tune
from msaccel.compare.verdicts import Versus, estimates, judge
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
    versus: list[Versus]
    refused: list[Refusal]
    notes: list[str]

    @property
    def flags(self) -> list[str]:
        """Every reservation about a pair of the set, each sentence once."""
        return list(dict.fromkeys(flag.sentence for versus in self.versus for flag in versus.flags))


@dataclass(frozen=True, eq=False)
class Report:
    """Sets that have finished runs, and all runs that are not averaged."""

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
        missing = f"{counted(list(records))}" if records else "none at all"
        raise UserError(f"there is no finished run to compare ({missing}); train one first: python run.py.")
    sections = []
    for original, title in zip(sets, titles(sets), strict=True):
        found, notes = original, []
        if tuned:
            result = tune(original, tuned)
            found, notes = result.found, result.said
        paired_up, refused = pairs(found, sets)
        tried = rates_tried(original)
        versus = [
            Versus(pair, estimates(pair, found.simulated, paired), {}, flags(pair, original, tried, tuned))
            for pair in paired_up
        ]
        sections.append(Section(title, found, versus, refused, [*notes, *_notes(found, bool(versus))]))
    _judge(sections)
    return Report(sections, [record for found in every for record in found.unfinished])


def titles(sets: Sequence[ComparisonSet]) -> list[str]:
    """A title for each set; where two would read the same, with the conditions in which they differ."""
    told = []
    for found in sets:
        alike = [other for other in sets if other is not found and other.title == found.title]
        differing = {key: value for other in alike for _, key, value, _ in unlike(found, other)}
        told.append(", ".join([found.title, *(f"{key}={value or 'not set'}" for key, value in differing.items())]))
    return told


def _judge(sections: Sequence[Section]) -> None:
    for measure in MEASURES:
        if measure.question:
            every = [(versus, section.found.simulated) for section in sections for versus in section.versus]
            asked = [(measure, versus.estimates.get(measure.name), simulated) for versus, simulated in every]
            for (versus, _), verdict in zip(every, judge(asked), strict=True):
                versus.verdicts[measure.question] = verdict


def _notes(found: ComparisonSet, compared: bool) -> list[str]:
    said = []
    smallest = min(len(method.runs) for method in found.methods)
    if smallest < LEAST_RUNS:
        said.append(f"n = {smallest} is too small to tell a difference from chance; add seeds: seed=0,1,2,3,4.")
    if repeats := sum(method.repeats for method in found.methods):
        said.append(f"{repeats} further runs repeat a seed with the same settings and are not counted.")
    runs = [run for method in found.methods for run in method.runs]
    if not compared and any(run.tags.get("selected_on") == "test" for run in runs):
        said.append(SELECTED_ON_TEST)
    return said
