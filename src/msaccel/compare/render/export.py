"""A report as JSON, whole, and as CSV, a row for each measure of each pair and of each method."""

from __future__ import annotations

import csv
import io
import json
import math
from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

import numpy as np

from msaccel.compare import targets
from msaccel.compare.groups import PRECISION
from msaccel.compare.measures import DIFFERENCE, FINAL, MEASURES, PROBABILITY, RATIO, SUCCESS, SUPERIORITY, values
from msaccel.compare.method_runs import MethodRuns
from msaccel.compare.rate_curves import RateCurve
from msaccel.compare.report import Report, Section
from msaccel.compare.statistics import summarize
from msaccel.compare.verdicts import Comparison
from msaccel.compare.workloads import OverWorkloads

FIELDS = (
    *("set", "method", "baseline", "baseline_name", "measure", "n", "attempts", "mean", "std", "lowest", "highest"),
    *("against", "value", "low", "high", "p", "p_adjusted", "verdict", "reached", "limit"),
    *("refused", "flags", "notes"),
)


def as_json(report: Report) -> str:
    """The report as JSON text."""
    content = {
        "workloads": [asdict(found) for found in report.workloads],
        "sets": [_section(section) for section in report.sections],
        "unfinished": [{"run_id": run.run_id, "name": run.name, "status": run.status} for run in report.unfinished],
    }
    return json.dumps(content, indent=2, ensure_ascii=False, allow_nan=False) + "\n"


def as_csv(report: Report) -> str:
    """The report as CSV text; a method that is no baseline has a row for each of its baselines.

    `p` tests for a difference; `p_adjusted` is Holm's of the test behind the verdict, which may be that of equivalence.
    """
    text = io.StringIO()
    writer = csv.DictWriter(text, FIELDS, lineterminator="\n")
    writer.writeheader()
    writer.writerows({field: _no_formula(cell) for field, cell in row.items()} for row in _every_row(report))
    return text.getvalue()


def _every_row(report: Report) -> Iterator[dict[str, Any]]:
    for found in report.workloads:
        yield from _workload_rows(found)
    for section in report.sections:
        yield from (_rate_row(section.title, curve) for curve in section.rates)
        for method in section.found.methods:
            mine: list[Comparison | None] = [
                comparison for comparison in section.comparisons if comparison.pair.method is method
            ]
            for comparison in mine or [None]:
                yield from _rows(section, method, comparison)
                yield from _target_rows(section, method, comparison)
                yield from _of_all_runs(section, comparison) if comparison else ()


def _section(section: Section) -> dict[str, Any]:
    methods = section.found.methods
    return {
        "title": section.title,
        "conditions": {**section.found.conditions, PRECISION: {PRECISION: section.found.precision}},
        "methods": [_method(method) for method in methods],
        "comparisons": [
            {
                "method": methods.index(comparison.pair.method),
                "baseline": methods.index(comparison.pair.baseline),
                "name": comparison.pair.name,
                "estimates": {name: asdict(estimate) for name, estimate in comparison.estimates.items()},
                "verdicts": {name: {"words": one.words, "p": one.p} for name, one in comparison.verdicts.items()},
                "targets": {name: asdict(found) for name, found in comparison.targets.items()},
                "flags": [asdict(flag) for flag in comparison.flags],
            }
            for comparison in section.comparisons
        ],
        "rates": [
            {
                "method": methods.index(curve.method),
                "points": [asdict(point) for point in curve.points],
                "width": curve.width,
                "interval": curve.interval,
                "open": curve.open,
            }
            for curve in section.rates
        ],
        "refused": [
            {
                "aspect": one.aspect,
                "sentence": one.sentence,
                "methods": [methods.index(method) for method in one.methods],
            }
            for one in section.refused
        ],
        "notes": section.notes,
    }


def _method(method: MethodRuns) -> dict[str, Any]:
    found = {measure.name: values(method, measure) for measure in MEASURES}
    return {
        "settings": method.settings,
        "n": len(method.trained),
        "attempts": method.attempts,
        "least_accuracy": method.least,
        "trained": [run.seed for run in method.trained],
        "repeats": method.repeats,
        "run_ids": {run.seed: run.run_id for run in method.runs},
        "measures": {
            name: {**asdict(summary), "by_seed": numbers}
            for name, numbers in found.items()
            if (summary := summarize(list(numbers.values())))
        },
        "targets": {
            measure.name: {"seeds": known.seeds, "at": known.at.tolist(), "reached": known.reached.tolist()}
            for measure in targets.MEASURES
            if (known := targets.times(method, measure)) and np.isfinite(known.at).all()
        },
    }


def _rows(section: Section, method: MethodRuns, comparison: Comparison | None) -> Iterator[dict[str, Any]]:
    for measure in MEASURES:
        summary = summarize(list(values(method, measure).values()))
        if summary is None and (measure is not FINAL or method.least is None):
            continue
        row: dict[str, Any] = {"set": section.title, "method": method.label, "measure": measure.name}
        row |= asdict(summary) if summary else {"n": 0}
        row["attempts"] = method.attempts
        row["notes"] = " ".join(section.notes)
        row["refused"] = " ".join(one.sentence for one in section.refused if method in one.methods)
        if comparison:
            row["flags"] = " ".join(flag.sentence for flag in comparison.flags)
            row |= {"baseline": comparison.pair.baseline.label, "baseline_name": comparison.pair.name}
            if estimate := comparison.estimates.get(measure.name):
                row |= {"against": measure.against, "value": estimate.value}
                row |= {"low": estimate.low, "high": estimate.high, "p": estimate.p}
            if measure.question:
                verdict = comparison.verdicts[measure.question]
                row |= {"p_adjusted": verdict.p, "verdict": verdict.words}
        yield row


def _target_rows(section: Section, method: MethodRuns, comparison: Comparison | None) -> Iterator[dict[str, Any]]:
    """Restricted means, of a pair up to the smaller budget."""
    for measure in targets.MEASURES:
        found, estimate = targets.times(method, measure), comparison and comparison.targets.get(measure.name)
        if found is None:
            continue
        row: dict[str, Any] = {"set": section.title, "method": method.label, "measure": measure.name}
        watched = found.within(found.limit)
        row |= {"n": len(found.seeds), "attempts": method.attempts, "reached": watched.reached.sum()}
        if np.isfinite(watched.at).all():
            row |= {"mean": watched.at.mean(), "limit": found.limit if math.isfinite(found.limit) else ""}
        if comparison:
            row |= {"baseline": comparison.pair.baseline.label, "baseline_name": comparison.pair.name}
        if estimate:
            row |= {"mean": estimate.means[0], "reached": estimate.reached[0], "limit": estimate.limit}
            row |= {"against": RATIO, "value": estimate.ratio.value, "low": estimate.ratio.low}
            row |= {"high": estimate.ratio.high, "p": estimate.ratio.p, "p_adjusted": estimate.p_adjusted}
        yield row


def _of_all_runs(section: Section, comparison: Comparison) -> Iterator[dict[str, Any]]:
    """Whether runs train, and how often one with the method ends above one without, where some do not train."""
    pair = comparison.pair
    for measure, against in ((SUCCESS, DIFFERENCE), (SUPERIORITY, PROBABILITY)):
        found, verdict = comparison.estimates.get(measure), comparison.verdicts.get(measure)
        if found:
            row: dict[str, Any] = {"set": section.title, "method": pair.method.label, "baseline": pair.baseline.label}
            row |= {"baseline_name": pair.name, "measure": measure, "n": found.n[0], "attempts": found.n[0]}
            row |= {"against": against, "value": found.value, "low": found.low, "high": found.high, "p": found.p}
            row |= {"p_adjusted": verdict.p, "verdict": verdict.words} if verdict else {}
            yield row


def _workload_rows(found: OverWorkloads) -> Iterator[dict[str, Any]]:
    measured = {
        "probability_of_improvement": (found.improvement, found.improvement_interval),
        "geometric_mean_speed": (found.speed, found.speed_interval),
    }
    for name, (value, interval) in measured.items():
        if value is not None:
            low, high = interval or ("", "")
            row: dict[str, Any] = {
                "set": f"{len(found.workloads)} workloads",
                "method": found.method,
                "baseline_name": found.baseline,
            }
            row |= {"measure": name, "value": value, "low": low, "high": high, "notes": "; ".join(found.workloads)}
            yield row


def _rate_row(title: str, curve: RateCurve) -> dict[str, Any]:
    low, high = curve.interval or ("", "")
    row: dict[str, Any] = {"set": title, "method": curve.method.label, "measure": "rate_width", "value": curve.width}
    row |= {"low": low, "high": high, "notes": f"open {' and '.join(curve.open)}" if curve.open else ""}
    return row


def _no_formula(cell: Any) -> Any:
    """A text that a spreadsheet would take for a formula gets a `'` before it, as a user of one would type."""
    return f"'{cell}" if isinstance(cell, str) and cell.startswith(("=", "+", "-", "@")) else cell
