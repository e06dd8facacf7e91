"""All claims as one self-contained HTML page: a forest plot, a table to sort and filter, and rate curves."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from msaccel.compare.render import format
from msaccel.compare.render.forest import Entry, forest
from msaccel.compare.render.glossary import terms
from msaccel.compare.render.html import template
from msaccel.study import sentences
from msaccel.study.claims import COSTS, Claim, summary
from msaccel.study.plots import MAX_MARGINS, RatePanel

_SCRIPT = Path(__file__).with_name("claims.js")
_HEADS = (  # and whether a column holds words
    *(("method", True), ("what it claims", True), ("answer", True)),
    *((head, False) for head in ("effect", "in margins", "trains", *COSTS, "n", "visible effect")),
)
Cell = tuple[str, float | None]  # what it shows, and the number by which it is sorted
_NOTHING: Cell = format.NONE, None


def page(found: Sequence[Claim], panels: Sequence[RatePanel], made: str) -> str:
    """The page.

    Args:
        made: from what and when it was made, a sentence.
    """
    entries = [entry for one in found if (entry := _entry(one))]
    return template("msaccel.study", "studies.html").render(
        summary=summary(found),
        made=made,
        inside_the_margin=sentences.INSIDE_THE_MARGIN,
        studies=list(dict.fromkeys(one.study for one in found)),
        workloads=sorted({one.workload for one in found}),
        forest=forest("Effect in units of its margin", entries, 0.0, "{:+g}", MAX_MARGINS, (-1.0, 1.0)),
        heads=_HEADS,
        rows=[(one, _cells(one)) for one in found],
        panels=panels,
        attributes=_attributes,
        terms=terms,
        script=_SCRIPT.read_text(),
    )


def _attributes(one: Claim | RatePanel) -> dict[str, str]:
    """The attributes by which an element is filtered."""
    return {"data-study": one.study, "data-workload": one.workload}


def _entry(one: Claim) -> Entry | None:
    effect = one.in_margins
    if effect is None:
        return None
    claimed = f"{sentences.claimed(one.hypothesis)} ({one.workload})"
    shown = format.estimate(one.answer.estimate), one.answer.words
    return Entry(one.hypothesis.method, claimed, *effect, *shown, one.kind, _attributes(one))


def _cells(one: Claim) -> list[Cell]:
    hypothesis, answer, effect = one.hypothesis, one.answer, one.in_margins
    estimate, side = answer.estimate, answer.pair.method if answer.pair else None
    share = len(side.trained) / side.attempts if side else None
    costs = [one.cost(measure) for measure in COSTS.values()]
    return [
        (f"{hypothesis.method}\n{one.study}", None),
        (f"{sentences.claimed(hypothesis)}\n{one.workload}: {one.part.title}", None),
        (f"{answer.words}\n{sentences.result(answer)}", None),
        (format.estimate(estimate).replace(" [", "\n["), estimate.value if estimate else None),
        (f"{effect[0]:+.2f}", effect[0]) if effect else _NOTHING,
        (sentences.trains(answer).replace(" against", "\nagainst"), share),
        *((format.effect(cost), cost.value) if cost else _NOTHING for cost in costs),
        (" and ".join(map(str, estimate.n)), min(estimate.n)) if estimate else _NOTHING,
        (sentences.visible(hypothesis, answer), estimate.visible(answer.level) if estimate else None),
    ]
