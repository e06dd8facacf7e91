"""Plots of studies: accuracy over the rate for a card and the page, and the effects of all claims for the README."""

from __future__ import annotations

import textwrap
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from statsmodels.stats.proportion import proportion_confint

from msaccel.compare.groups import ComparisonSet, group
from msaccel.compare.measures import FINAL
from msaccel.compare.render import format
from msaccel.compare.render.figures import LOOK, Style, as_svg, new_figure, percent, rate_axis
from msaccel.compare.render.plots import over_rates
from msaccel.compare.report import titles
from msaccel.compare.runs import Record
from msaccel.compare.tuning import RATE
from msaccel.files import atomic_write_figure
from msaccel.study import sentences
from msaccel.study.claims import Claim, workload
from msaccel.study.jobs import StudyJob
from msaccel.study.protocol import StudyPart
from msaccel.study.results import part_results
from msaccel.study.runner import StudyRunner

MAX_MARGINS = 6.0  # the furthest that an axis of effects reaches; effects beyond it get a pointing marker
_COLUMNS = 3
_SLIGHT = 0.001  # the least that an axis of accuracies begins below what it shows
_SHADES = {"up": "#0a6b43", "down": "#a8321c", "same": "#0072b2", "": "0.35"}


def rates(runner: StudyRunner) -> Figure | None:
    """Final accuracy of every run over its rate, a panel for each set of conditions; None if no rate was chosen."""
    tuned = [part for part in runner.study.parts.values() if len(part.rates) > 1]
    panels = [panel for part in tuned for panel in _panels(runner, part)]
    if not panels:
        return None
    columns = min(_COLUMNS, len(panels))
    figure = Figure(figsize=(4.4 * columns, 3.4 * -(-len(panels) // columns)), layout="constrained")
    for place, (title, runs, trained) in enumerate(panels):
        _panel(figure.add_subplot(-(-len(panels) // columns), columns, place + 1), title, runs, trained)
    return figure


def _panels(runner: StudyRunner, part: StudyPart) -> list[tuple[str, dict[StudyJob, Record], set[str]]]:
    """For each set of conditions its title, its runs, and the ids of those that train."""
    found = {job: run for job, run in runner.runs.of_jobs(runner.jobs(part)).items() if "final/accuracy" in run.metrics}
    of_run = {run.run_id: job for job, run in found.items()}
    sets = [one for one in group(found.values(), across_budgets=True) if one.methods]
    named = titles(sets) if len(sets) > 1 else [part.title] * len(sets)  # none where nothing is trained yet
    members = [{of_run[run.run_id]: run for run in one.runs} for one in sets]
    trained = [{run.run_id for method in one.methods for run in method.trained} for one in sets]
    return list(zip(named, members, trained, strict=True))


def _accuracies(runs: Mapping[StudyJob, Record]) -> dict[str, dict[float, list[float]]]:
    """Final accuracies by arm and rate."""
    found: dict[str, dict[float, list[float]]] = defaultdict(lambda: defaultdict(list))
    for job, run in runs.items():
        value = FINAL.read(run)
        if value is not None:
            found[job.arm][job.rate].append(value)
    return found


def _lowest(means: Collection[Mapping[float, float]]) -> float:
    """Where an axis of accuracies begins: a little below every method's best mean and the means beside it.

    Runs that fail would otherwise leave no room for the differences between those that train.

    Args:
        means: of each method, by rate in ascending order.
    """
    shown = list[float]()
    for values in map(list, (line.values() for line in means)):
        best = values.index(max(values))
        shown += values[max(0, best - 1) : best + 2]
    return min(shown) - max(0.3 * (max(shown) - min(shown)), _SLIGHT) if shown else 0.0


def _panel(axes: Axes, title: str, runs: Mapping[StudyJob, Record], trained: Collection[str]) -> None:
    """A point for each seed, or a triangle at the lower edge, and a line through the means of those that train."""
    by_method = _accuracies(runs)
    of_trained = _accuracies({job: run for job, run in runs.items() if run.run_id in trained})
    means = {
        method: {rate: float(np.mean(own)) for rate, own in sorted(values.items())}
        for method, values in of_trained.items()
    }
    lowest = _lowest(means.values())
    for place, (method, values) in enumerate(by_method.items()):
        style, line = Style(place), means.get(method, {})
        axes.plot([*line], [*line.values()], linewidth=1.4, label=method, **style.line(len(line)) | {"marker": None})
        for rate in sorted(values):
            inside = [value for value in values[rate] if value >= lowest]
            axes.plot([rate] * len(inside), inside, style.marker, color=style.colour, alpha=0.6, markersize=4)
            if len(inside) < len(values[rate]):
                axes.plot(rate, lowest, "v", color=style.colour, alpha=0.8, markersize=6, clip_on=False)
    reached = [value for values in by_method.values() for own in values.values() for value in own]
    if min(reached) < lowest:
        axes.plot([], [], "v", color="0.35", markersize=6, label="below the axis")
    axes.set_ylim(lowest, max(reached) + 0.05 * (max(reached) - lowest))
    rate_axis(axes, (rate for values in by_method.values() for rate in values))
    percent(axes.yaxis)
    axes.set_title(textwrap.fill(title, 50), fontsize=9)
    axes.set_ylabel("final accuracy")
    axes.grid(alpha=0.3)
    axes.legend(fontsize=8)


def differences(found: Sequence[Claim]) -> Figure | None:
    """The effect of each claim in units of its margin, with its 95 % interval; None without an estimate."""
    known = [(one, effect) for one in found if (effect := one.in_margins)]
    if not known:
        return None
    figure = Figure(figsize=(10, 0.9 + 0.45 * len(known)), layout="constrained")
    axes = figure.add_subplot()
    axes.axvspan(-1, 1, color="0.92", zorder=0)
    axes.axvline(0, color="black", linewidth=0.8)
    for place, (one, (value, interval)) in enumerate(known):
        shade, at = _SHADES[one.kind], min(max(value, -MAX_MARGINS), MAX_MARGINS)
        if interval:
            axes.plot(interval, [place, place], color=shade, linewidth=2.5)
        marker = "o" if at == value else "<" if value < 0 else ">"
        axes.plot(at, place, marker, color=shade, markersize=8, clip_on=False)
        said = f"{one.answer.words}\n{format.estimate(one.answer.estimate)}"
        axes.text(1.02, place, said, color=shade, transform=axes.get_yaxis_transform(), va="center", fontsize=8)
    ends = [1.2, -1.2, *(end for _, (value, interval) in known for end in (value, *(interval or ())))]
    axes.set_xlim(max(min(ends) - 0.2, -MAX_MARGINS), min(max(ends) + 0.2, MAX_MARGINS))
    names = [f"{one.hypothesis.method}, {one.workload}\n{sentences.claimed(one.hypothesis)}" for one, _ in known]
    axes.set_yticks(range(len(names)), names, fontsize=8)
    axes.set_ylim(len(names) - 0.4, -0.6)
    axes.set_xlabel("effect in units of the margin that was declared (grey), with its 95 % interval", fontsize=8)
    axes.tick_params(length=0, pad=8, labelsize=8)
    axes.spines[["left", "top", "right"]].set_visible(False)
    axes.grid(alpha=0.3, axis="x")
    return figure


@dataclass(frozen=True)
class RatePanel:
    """A figure over the learning rate.

    Attributes:
        svg: the figure as an element of a page.
        arms: how each arm is drawn, by name.
    """

    title: str
    study: str
    workload: str
    svg: str
    arms: dict[str, Style]


def rate_panels(runner: StudyRunner) -> list[RatePanel]:
    """For each part with several rates: accuracy over the rate, and if some run fails, the share that trains."""
    panels = list[RatePanel]()
    for result in part_results(runner):
        part = result.part
        of_run = {run.run_id: job.arm for job, run in runner.runs.of_jobs(runner.jobs(part)).items()}
        if len(part.rates) == 1:
            continue
        arms = {name: Style(place) for place, name in enumerate(part.arms)}
        curves = [curve for section in (result.tuned.sections if result.tuned else ()) for curve in section.rates]
        with matplotlib.rc_context(LOOK):
            figures = [
                over_rates({one: arms[of_run[one.method.known[0].run_id]] for one in curves}),
                _shares(result.untuned, of_run, arms),
            ]
            for figure in filter(None, figures):
                svg = as_svg(figure, f"{runner.study.name}{len(panels)}")
                panels.append(RatePanel(part.title, runner.study.name, workload(runner, part), svg, arms))
    return panels


def _shares(sets: Sequence[ComparisonSet], of_run: Mapping[str, str], arms: Mapping[str, Style]) -> Figure | None:
    """With Wilson's 95 % intervals; None where every run trains."""
    found: dict[str, list[tuple[float, int, int]]] = defaultdict(list)
    for method in (method for one in sets for method in one.methods):
        if method.attempts:  # else every run crashed, which says nothing of the rate
            at = method.number(RATE) or 0.0, len(method.trained), method.attempts
            found[of_run[method.known[0].run_id]].append(at)
    if all(trained == attempts for values in found.values() for _, trained, attempts in values):
        return None
    figure, axes = new_figure()
    for name, values in found.items():
        rates, trained, attempts = np.array(sorted(values)).T
        low, high = proportion_confint(trained, attempts, method="wilson")
        axes.plot(rates, trained / attempts, linewidth=1.3, markersize=4, **arms[name].line(len(rates)))
        axes.fill_between(rates, low, high, color=arms[name].colour, alpha=0.15, linewidth=0)
    rate_axis(axes, (rate for values in found.values() for rate, *_ in values))
    axes.set_ylabel("share that trains")
    percent(axes.yaxis)
    return figure


def save(figure: Figure | None, path: Path) -> None:
    """Writes a figure as PNG, if there is one."""
    if figure is not None:
        path.parent.mkdir(parents=True, exist_ok=True)
        atomic_write_figure(figure, path, dpi=100, metadata={"Software": None})
