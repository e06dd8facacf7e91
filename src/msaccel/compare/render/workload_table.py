"""The table over all workloads of a report."""

from __future__ import annotations

from msaccel.compare.render import format
from msaccel.compare.report import Report
from msaccel.compare.workloads import FACTORS, Interval, OverWorkloads

WORKLOAD_NOTE = (
    "Over workloads: how probable it is that a run of the method ends above one of its baseline (a half is no "
    "improvement), the geometric mean of the speed ratios, and the share of workloads on which each needs at most so "
    "many times the samples to the target that the better one needs. 95 % intervals; accuracies of workloads are not "
    "averaged."
)


def workload_rows(report: Report) -> list[list[str]]:
    """Headings, and a row for each method and baseline; none with fewer than two workloads."""
    if not report.workloads:
        return []
    shares = [f"within {factor:g} ×" for factor in FACTORS]
    return [["method", "baseline", "workloads", "improves", "samples/s", *shares], *map(_row, report.workloads)]


def _row(found: OverWorkloads) -> list[str]:
    profile = [f"{method:.0%} against {baseline:.0%}" for method, baseline in found.profile or ()]
    improves = f"{found.improvement:.2f}{_interval(found.improvement_interval, '{:.2f}')}"
    speed = format.NONE
    if found.speed is not None:
        speed = f"{format.factor(found.speed)} ×{_interval(found.speed_interval, '{:.3f}')}"
    cells = [found.method, found.baseline, str(len(found.workloads)), improves, speed]
    return cells + (profile or [format.NONE] * len(FACTORS))


def _interval(found: Interval, form: str) -> str:
    return f" [{form.format(found[0])}, {form.format(found[1])}]" if found else ""
