"""Results of a study from MLflow: the text of its card, and the table over studies."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

from msaccel.compare.groups import ComparisonSet, group
from msaccel.compare.render import format
from msaccel.compare.render.card import provenance
from msaccel.compare.render.markdown import escape, method_rows, table, tables
from msaccel.compare.report import Report, build, titles
from msaccel.compare.runs import Record
from msaccel.compare.tuning import RATE
from msaccel.errors import UserError
from msaccel.study import sentences
from msaccel.study.claims import Claim, corrected
from msaccel.study.plan import mixed
from msaccel.study.protocol import StudyPart
from msaccel.study.runner import StudyRunner
from msaccel.tracking.status import FINISHED

_TIMES = ("time/", "throughput/", "machine/")
_OF_TRAINING = ("final/", "best/", "eval/", "val/", "time/to_target_s", "epoch")


@dataclass(frozen=True)
class PartResult:
    """The runs of one part of a study.

    Attributes:
        tuned: the methods at their chosen rates, compared; None if the part only measures.
        untuned: all rates, not compared, in sets of the same conditions.
    """

    part: StudyPart
    tuned: Report | None
    untuned: list[ComparisonSet]

    @property
    def runs(self) -> list[Record]:
        return [run for found in self.untuned for run in found.runs]


def part_results(runner: StudyRunner) -> list[PartResult]:
    """The results of every part that has finished runs."""
    found = []
    for part in runner.study.parts.values():
        records = list(runner.runs.of_jobs(runner.jobs(part)).values())
        left_out = (*(_TIMES if part.beside > 1 else ()), *(_OF_TRAINING if part.speed else ()))
        records = [_without(record, left_out) for record in records]
        if any(record.status == FINISHED for record in records):
            tuned = None
            if part.hypothesis:
                with suppress(UserError):  # the rates of some arms are still missing, as the text and the answer say
                    tuned = build(
                        records,
                        RATE if part.tuned or part.own_rates else None,
                        paired=True,
                        margin=part.margin,
                        declared=True,
                        same_values=not part.own_rates,
                    )
            untuned = [one for one in group(records, across_budgets=True) if one.runs]
            found.append(PartResult(part, tuned, untuned))
    return found


def card_text(runner: StudyRunner) -> str:
    """The text between the markers of the card.

    Raises:
        UserError: nothing was trained yet.
    """
    found = part_results(runner)
    if not found:
        name = runner.study.name
        raise UserError(f"study {name} has no finished run; write python -m msaccel study {name}.")
    blocks = [f"**Claim.** {runner.study.claim}"]
    blocks += [block for answer in found for block in _part(answer, runner)]
    if any(len(answer.part.rates) > 1 for answer in found):
        blocks.append(f"![Final accuracy over the rate]({runner.study.plot_file.name})")
    command = shlex.join(["python", "-m", "msaccel", "study", runner.study.name, *runner.overrides])
    blocks.append(f"`{command}`: {provenance(runner.client, runner.trained())}")
    missing = sum(len(runner.missing(part)) for part in runner.study.parts.values())
    if missing:
        blocks.append(f"**Not complete:** {missing} jobs are missing at least; the same command trains them.")
    return "\n\n".join(blocks)


def _part(answer: PartResult, runner: StudyRunner) -> Iterator[str]:
    part = answer.part
    yield f"### {part.title}"
    if part.hypothesis:
        yield sentences.verdict(part, runner.answer(part))
    if later := runner.study.settled_by(part):
        yield f"The same question is asked again, with seeds that this part does not have, in “{later.title}”."
    if said := runner.controlled(part):
        yield said
    yield from map(escape, mixed(answer.runs))
    if answer.tuned:
        yield tables(answer.tuned)
    if part.beside > 1:
        yield f"{part.beside} jobs ran beside each other, so times were not compared."
    if len(part.rates) > 1:
        yield "Every rate that was tried:"
    if len(part.rates) > 1 or not answer.tuned:
        several = len(answer.untuned) > 1
        for title, found in zip(titles(answer.untuned), answer.untuned, strict=True):
            if several:
                yield f"**{escape(title)}**"
            yield table(method_rows(found))


def _without(record: Record, left_out: tuple[str, ...]) -> Record:
    return replace(record, metrics={k: v for k, v in record.metrics.items() if not k.startswith(left_out)})


HEADINGS = ("method", "what it claims", "answer", "effect [95 %]", "trains", "cost", "how sure", "command")


def overview(found: Sequence[Claim]) -> str:
    """A table of the trained claims, with effect, cost, certainty and command; below it a list of the others."""
    rows = [list(HEADINGS)]
    for one, p in zip(found, corrected(found), strict=True):
        hypothesis, answer = one.hypothesis, one.answer
        if not one.trained:
            continue
        rows.append(
            [
                f"{escape(hypothesis.method)} ({_card(one)})",
                f"{escape(sentences.claimed(hypothesis))}; {one.workload}: {escape(one.part.title)}",
                f"**{answer.words}**: {sentences.result(answer)}",
                sentences.effect(hypothesis, answer),
                sentences.trains(answer),
                one.costs,
                sentences.sure(hypothesis, answer) + format.probability(p),
                f"`python -m msaccel study {one.study}`",
            ]
        )
    blocks = [table(rows)] if rows[1:] else []
    waiting = [
        f"- {_card(one)}: {escape(one.hypothesis.method)} {escape(sentences.claimed(one.hypothesis))} ({one.workload})"
        for one in found
        if not one.trained
    ]
    if waiting:
        blocks += ["Not trained yet (`python -m msaccel study NAME` trains one):", "\n".join(waiting)]
    return "\n\n".join(blocks)


def _card(claim: Claim) -> str:
    return f"[{claim.study}](experiments/{claim.study}/README.md)"
