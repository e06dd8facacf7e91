"""Numbers formatted alike for all output formats."""

from __future__ import annotations

from collections.abc import Sequence

from msaccel.compare.groups import ComparisonSet
from msaccel.compare.measures import COST, FINAL, MEASURES, Measure, values
from msaccel.compare.method_runs import MethodRuns
from msaccel.compare.statistics import Estimate, summarize
from msaccel.compare.verdicts import Decision

NONE = "–"


def average(numbers: Sequence[float], form: str) -> str:
    """`98.41% ± 0.12%`; only the mean for a single value, a dash for none."""
    found = summarize(numbers)
    if found is None:
        return NONE
    mean = form.format(found.mean)
    return mean if found.std is None else f"{mean} ± {form.format(found.std)}"


def lowest(numbers: Sequence[float], form: str) -> str:
    """The worst seed, which a mean hides."""
    return form.format(min(numbers)) if numbers else NONE


def estimate(found: Estimate | None) -> str:
    """`+0.31 points [+0.12, +0.50]`, `1.92 × [1.85, 1.99]` or `93.5 % of pairs [83.2, 99.1]`."""
    if found is None:
        return NONE
    if found.low is None or found.high is None:
        return effect(found)
    return f"{effect(found)} [{_number(found, found.low)}, {_number(found, found.high)}]"


def effect(found: Estimate) -> str:
    """`+0.31 points`, `1.92 ×` or `93.5 % of pairs`."""
    unit = "×" if found.is_ratio else "% of pairs" if found.is_probability else "points"
    return f"{_number(found, found.value)} {unit}"


def _number(found: Estimate, value: float) -> str:
    if found.is_ratio:
        return factor(value)
    return f"{100 * value:.1f}" if found.is_probability else f"{100 * value:+.2f}"


def factor(ratio: float) -> str:
    """`0.667`, `1.002`, `12.3`: as many digits as tell a ratio from one."""
    return f"{ratio:.3f}" if ratio < 10 else f"{ratio:.3g}"


def verdict(found: Decision) -> str:
    """`better (p = 0.012)`."""
    return found.words + probability(found.p)


def probability(p: float | None) -> str:
    """` (p = 0.012)`; nothing where there is none."""
    return "" if p is None else f" (p {'< 0.001' if p < 0.001 else f'= {p:.3f}'})"


def count(method: MethodRuns) -> str:
    """How many runs the numbers are of: `10`, or `trained 9 of 10` where not all did."""
    many, attempts = len(method.trained), method.attempts
    return str(many) if many == attempts else f"trained {many} of {attempts}"


def measured(found: ComparisonSet) -> list[Measure]:
    """The measures that some run of the set has; forward-equivalents only as a ratio to the baseline."""
    return [m for m in MEASURES if m is not COST and any(values(method, m) for method in found.methods)]


def heads(found: ComparisonSet) -> list[str]:
    """Headings of a table of methods."""
    headings = []
    for measure in measured(found):
        headings += [measure.heading] + (["lowest"] if measure is FINAL else [])
    return [*found.methods[0].settings, "n", *headings]


def rows(found: ComparisonSet) -> list[list[str]]:
    """The cells of each method below `heads`."""
    measures = measured(found)
    return [_row(method, measures) for method in found.methods]


def _row(method: MethodRuns, measures: Sequence[Measure]) -> list[str]:
    cells = []
    for measure in measures:
        numbers = list(values(method, measure).values())
        cells.append(average(numbers, measure.number_format))
        if measure is FINAL:
            cells.append(lowest(numbers, measure.number_format))
    return [*(value or NONE for value in method.settings.values()), count(method), *cells]


def without_verdict(estimates: Sequence[dict[str, Estimate]]) -> list[Measure]:
    """The measures that get no verdict, if some pair has an estimate."""
    return [m for m in MEASURES if m.question is None and any(m.name in one for one in estimates)]
