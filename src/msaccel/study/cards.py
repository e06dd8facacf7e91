"""Writes the results of studies into their cards and into the README, between their markers."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from msaccel.compare.render.card import write_into
from msaccel.study import plots, published, results
from msaccel.study.runner import StudyRunner

OVERVIEW = Path("docs/pictures/studies.png")


def write(runner: StudyRunner) -> str:
    """Writes the card, the plot and the published runs of a study, unless overrides make it another study.

    Returns:
        What to print: the card's path, or its text if it was not written.
    """
    text = results.card_text(runner)
    if runner.overrides:
        return text
    plots.save(plots.rates(runner), runner.study.plot_file)
    write_into(runner.study.card, text)
    published.publish(runner)
    return f"{runner.study.name}: {runner.study.card}"


def write_overview(runners: Sequence[StudyRunner], path: Path) -> None:
    """Writes the table over studies into a file in the repository's root, and its plot where the file refers to it."""
    pairs = results.comparisons(runners)
    blocks = [results.overview(pairs)]
    if figure := plots.differences(pairs):
        plots.save(figure, path.parent / OVERVIEW)
        blocks.append(f"![Differences to the baselines]({OVERVIEW})")
    write_into(path, "\n\n".join(blocks))
