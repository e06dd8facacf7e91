"""Writes the results of studies: into their cards, into the README, into words and into a page."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timezone
from pathlib import Path

from msaccel.compare.render.card import write_into
from msaccel.compare.render.html import origin
from msaccel.compare.render.markdown import escape, table
from msaccel.files import atomic_write_text
from msaccel.study import plots, published, results, sentences
from msaccel.study.claims import Claim, ClaimSummary, claims, corrected, is_doubted, summary
from msaccel.study.page import page
from msaccel.study.runner import StudyRunner

PICTURE, ADVICE, PAGE = Path("docs/pictures/studies.png"), Path("docs/answer.md"), Path("docs/studies.html")
SUMMARY = "summary"  # the name of the markers at the top of the README
_CAPTION = (
    "*The p in the table is that of the answer, times the number of looks and after Holm's correction over all claims. "
    "The picture at the top shows the effect of each method in units of its margin, with a 95 % interval. "
    f"{sentences.INSIDE_THE_MARGIN}*"
)


def write(runner: StudyRunner) -> str:
    """Writes the card, the plot and the published runs of a study, unless overrides make it another study.

    Returns:
        What to print: the card's path, or its text if it was not written.

    Raises:
        UserError: nothing was trained yet, or more runs are published than there are.
    """
    text = results.card_text(runner)
    if runner.overrides:
        return text
    runs = published.as_csv(runner)
    plots.save(plots.rates(runner), runner.study.plot_file)
    write_into(runner.study.card, text)
    atomic_write_text(published.file_of(runner.study), runs)
    return f"{runner.study.name}: {runner.study.card}"


def write_overview(runners: Sequence[StudyRunner], path: Path) -> Path:
    """Writes the answers of studies into a README in the repository's root, and into the files that it links to.

    Returns:
        The page.
    """
    root, found = path.parent, claims(runners)
    short = _in_short(summary(found))
    picture = f"![Effects of all claims, with intervals and margins]({PICTURE})"
    plots.save(plots.differences(found), root / PICTURE)
    links = f"In words: [{ADVICE.name}]({ADVICE}). To sort and filter, with rate curves: [{PAGE.name}]({PAGE})."
    write_into(path, f"{short}\n\n{picture}", SUMMARY)
    write_into(path, "\n\n".join([results.overview(found), _CAPTION, links]))
    write_into(root / ADVICE, "\n".join(map(_advice, found, corrected(found))))
    runs = [run for one in runners for run in one.trained()]
    made = f"{len(runs)} runs, read on {datetime.now(timezone.utc):%Y-%m-%d}; {'; '.join(origin(runs))}."
    panels = [panel for runner in runners for panel in plots.rate_panels(runner)]
    atomic_write_text(root / PAGE, page(found, panels, made))
    return root / PAGE


def _in_short(said: ClaimSummary) -> str:
    """The summary as Markdown."""
    rows = [[f"**{heading}**", "<br>".join(map(escape, texts))] for heading, texts in said.findings.items()]
    found = table([["answer", "claims"], *rows]) if rows else ""
    return "\n\n".join(filter(None, [f"**In short:** {said.counts}", found, said.note]))


def _advice(one: Claim, p: float | None) -> str:
    doubted = is_doubted(one, p)
    said = escape(sentences.advice(one.hypothesis, one.answer, doubted))
    if one.time:
        said += f" {one.hypothesis.method} takes {one.time}."
    doubt = " Undecided if all claims are judged as one family." if doubted else ""
    return f"- [{one.study}](../experiments/{one.study}/README.md), {one.workload}: {said}{doubt}"
