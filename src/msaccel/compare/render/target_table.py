"""The table of times to the target: how many seeds reached it, the median, and ratios of restricted means."""

from __future__ import annotations

from collections.abc import Iterator

from msaccel.compare.method_runs import MethodRuns
from msaccel.compare.render import format
from msaccel.compare.report import Section
from msaccel.compare.targets import MEASURES, SAMPLES, TARGET, has_target, times
from msaccel.compare.verdicts import Comparison


def target_rows(section: Section) -> list[list[str]]:
    """Headings, and a row for each baseline and for each comparison; none where no run had a target."""
    targeted = [method for method in section.found.methods if has_target(method)]
    shown = [one for one in MEASURES if any(times(method, one) for method in targeted)]
    if not shown:
        return []
    heads = ["method", "baseline", "reached", f"median {SAMPLES.heading}", *(measure.heading for measure in shown)]
    rows = [row for method in targeted for row in _rows(method, section)]
    return [heads, *(row[:4] + [row[4 + MEASURES.index(measure)] for measure in shown] for row in rows)]


def target_note(section: Section) -> str:
    """What the table is of, a sentence."""
    target = section.found.methods[0].number(TARGET) or 0.0
    return (
        f"Time to an accuracy of {target:.4g}: ratios of restricted means to the baseline's, with 95 % intervals "
        "(Fieller); a run that misses the target counts with the whole budget. p is of the log-rank test, after Holm."
    )


def _rows(method: MethodRuns, section: Section) -> Iterator[list[str]]:
    known = next((found for measure in MEASURES if (found := times(method, measure))), None)
    reached = f"{known.reached.sum()} of {len(known.seeds)}" if known else format.NONE
    in_samples = times(method, SAMPLES)
    median = "not reached" if in_samples else format.NONE
    if in_samples and in_samples.median:
        median = f"{in_samples.median:,.0f}"
    mine: list[Comparison | None] = [one for one in section.comparisons if one.pair.method is method]
    for one in mine or [None]:
        name = one.pair.name if one else format.NONE
        yield [method.label, name, reached, median, *(_ratio(one, measure.name) for measure in MEASURES)]


def _ratio(comparison: Comparison | None, name: str) -> str:
    found = comparison.targets.get(name) if comparison else None
    return format.estimate(found.ratio) + format.probability(found.p_adjusted) if found else format.NONE
