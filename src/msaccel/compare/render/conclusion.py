"""The conclusion of a report, made from its verdicts: a sentence, its number, and what else a reader needs at once."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass, field

from msaccel.compare.measures import ACCURACY, FINAL, SPEED, SUCCESS, THROUGHPUT
from msaccel.compare.render import format
from msaccel.compare.report import Report, Section
from msaccel.compare.statistics import Estimate
from msaccel.compare.verdicts import DOWN, UP, Comparison


@dataclass(frozen=True)
class Conclusion:
    """What a report has found.

    Attributes:
        sentence: the conclusion.
        number: its estimate without the interval, and `unit` after it; empty where nothing was compared.
        facts: interval, n, what was compared with what, speed, and the other comparisons, a sentence each.
    """

    sentence: str
    number: str = ""
    unit: str = ""
    facts: list[str] = field(default_factory=list)


def conclude(report: Report) -> Conclusion:
    """The conclusion about final accuracy, or about the shares that train where these differ; of several comparisons
    the one with the smallest p leads."""
    pairs = [(section, one) for section in report.sections for one in section.comparisons]
    if not pairs:
        refused = any(section.refused for section in report.sections)
        reason = "no method has its baseline here" if refused else "there are only baselines here"
        return Conclusion(f"Nothing is compared: {reason}.")
    section, lead = min(pairs, key=lambda pair: _p(pair[1]))
    estimate = _estimate(lead)
    value, _, interval = format.estimate(estimate).partition(" [")
    number, _, unit = value.partition(" ") if estimate else ("", "", "")
    unit += " of the share that trains" if _is_about_shares(lead) else ""
    certainty = [f"95 % interval [{interval}"] if interval else []
    certainty += [f"n = {estimate.n[0]} and {estimate.n[1]} seeds"] if estimate else []
    certainty += [format.verdict(lead.accuracy)]
    facts = [", ".join(certainty) + ".", *_facts(section, lead), *_tally(pairs)]
    return Conclusion(_sentence(lead), number, unit, facts)


def _p(comparison: Comparison) -> tuple[float, float]:
    """A sort key: Holm's p, then the p before correction; infinite where no test was made."""
    estimate = _estimate(comparison)
    before = None if estimate is None else estimate.p
    return tuple(math.inf if p is None else p for p in (comparison.accuracy.p, before))  # type: ignore[return-value]


def _estimate(comparison: Comparison) -> Estimate | None:
    """What the verdict is about: final accuracies, or the shares of runs that train."""
    return comparison.estimates.get(SUCCESS if _is_about_shares(comparison) else FINAL.name)


def _is_about_shares(comparison: Comparison) -> bool:
    return comparison.accuracy is comparison.verdicts.get(SUCCESS)


def _sentence(comparison: Comparison) -> str:
    method, decision = comparison.pair.method.label, comparison.accuracy
    if _is_about_shares(comparison):
        return f"{method} {decision.words} than its baseline."
    if decision.verdict in (UP[ACCURACY], DOWN[ACCURACY]):
        return f"{method} ends at a {decision.words} accuracy than its baseline."
    return f"{method} against its baseline: {decision.words}."


def _facts(section: Section, comparison: Comparison) -> list[str]:
    pair, speed = comparison.pair, comparison.estimates.get(THROUGHPUT.name)
    verdict = format.verdict(comparison.verdicts[SPEED])
    facts = [
        f"The baseline: {pair.baseline.label}, {pair.name}. Both on {section.title}.",
        f"Speed: {verdict}{f', {format.estimate(speed)} samples/s' if speed else ''}.",
    ]
    if (trains := comparison.verdicts.get(SUCCESS)) and not _is_about_shares(comparison):
        facts.append(f"Not every run trains: {format.verdict(trains)}.")
    if many := len(comparison.flags):
        facts.append(f"Read with care: {many} {'reservation' if many == 1 else 'reservations'} about it below.")
    return facts


def _tally(pairs: list[tuple[Section, Comparison]]) -> list[str]:
    """How many comparisons got which verdict, where there are several."""
    if len(pairs) == 1:
        return []
    counts = (
        f"{question}: {', '.join(f'{many} {words}' for words, many in Counter(found).most_common())}"
        for question, found in (
            (ACCURACY, [one.accuracy.words for _, one in pairs]),
            (SPEED, [one.verdicts[SPEED].words for _, one in pairs]),
        )
    )
    which = "the one with the smallest p" if any(math.isfinite(_p(one)[1]) for _, one in pairs) else "the first"
    return [f"This is {which} of {len(pairs)} comparisons ({'; '.join(counts)})."]
