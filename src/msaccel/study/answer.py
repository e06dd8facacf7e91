"""What a study found, from MLflow: the text of its card, its picture, and the table over all studies."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from msaccel.compare.measures import ACCURACY, FINAL, SPEED, THROUGHPUT
from msaccel.compare.render import format
from msaccel.compare.render.card import provenance
from msaccel.compare.render.markdown import section_text, table
from msaccel.compare.report import Report, build
from msaccel.compare.runs import Record
from msaccel.compare.verdicts import Comparison
from msaccel.errors import UserError
from msaccel.launch.job_folder import FINISHED
from msaccel.study.driver import Driver
from msaccel.study.jobs import RATE
from msaccel.study.protocol import Part

_TIMES = ("time/", "throughput/")
_ACCURACIES = ("final/", "best/", "eval/", "val/", "time/to_target_s")
BESIDE = "{} jobs ran beside each other, so times were not compared."


@dataclass(frozen=True)
class Answer:
    """One part of a study, answered.

    Attributes:
        tuned: the methods at their chosen rates, compared; None where the part only measures.
        every: all that was trained, not compared.
    """

    part: Part
    tuned: Report | None
    every: Report


def answers(driver: Driver) -> list[Answer]:
    """Every part that has finished runs."""
    found = []
    for part in driver.study.parts.values():
        records = list(driver.known.of(driver.jobs(part)).values())
        left_out = (*(_TIMES if part.beside > 1 else ()), *(_ACCURACIES if part.speed_only else ()))
        records = [_without(record, left_out) for record in records]
        if any(record.status == FINISHED for record in records):
            tuned = build(records, RATE if len(part.rates) > 1 else None) if part.judged else None
            found.append(Answer(part, tuned, build(records)))
    return found


def text(driver: Driver) -> str:
    """What stands between the markers of the card.

    Raises:
        UserError: nothing was trained yet.
    """
    found = answers(driver)
    if not found:
        name = driver.study.name
        raise UserError(f"study {name} has no finished run; write python -m msaccel study {name}.")
    blocks = [block for answer in found for block in _part(answer, driver)]
    if any(len(answer.part.rates) > 1 for answer in found):
        blocks.append(f"![Final accuracy over the rate]({driver.study.picture.name})")
    every = [run for answer in found for run in answer.every.runs]
    command = shlex.join(["python", "-m", "msaccel", "study", driver.study.name, *driver.more])
    blocks.append(f"`{command}`: {provenance(driver.client, every)}")
    missing = sum(len(driver.known.missing(driver.jobs(part))) for part in driver.study.parts.values())
    if missing:
        blocks.append(f"**Not complete:** {missing} jobs are missing at least; the same command trains them.")
    return "\n\n".join(blocks)


def _part(answer: Answer, driver: Driver) -> Iterator[str]:
    part = answer.part
    yield f"### {part.title}"
    if answer.tuned:
        yield from _sections(answer.tuned, compared=True)
    if part.beside > 1:
        yield BESIDE.format(part.beside)
    if part.by_epoch:
        yield "Test accuracy after each epoch, at the rates of the comparison:"
        yield _by_epoch(answer, driver)
    if len(part.rates) > 1:
        yield "Every rate that was tried:"
    if len(part.rates) > 1 or not answer.tuned:
        yield from _sections(answer.every, compared=False)


def _sections(report: Report, compared: bool) -> Iterator[str]:
    for section in report.sections:
        if len(report.sections) > 1:
            yield f"**{section.title}**"
        if compared:
            yield section_text(section)
        else:
            found = section.found
            yield table([format.heads(found), *(format.row(method, found) for method in found.methods)])


def _by_epoch(answer: Answer, driver: Driver) -> str:
    """Means over seeds at every evaluation: the points that could be cut out of a schedule before its end."""
    of_run = driver.methods(answer.part)
    rows: list[list[str]] = []
    for section in (answer.tuned or answer.every).sections:
        for method in section.found.methods:
            histories = [driver.client.get_metric_history(run.run_id, "eval/accuracy") for run in method.runs]
            accuracies = [[point.value for point in sorted(h, key=lambda point: point.step)] for h in histories]
            cells = [format.average(at, FINAL.shown) for at in zip(*accuracies, strict=False)]
            rows.append([of_run[method.runs[0].run_id], str(len(method.runs)), *cells])
    longest = max(map(len, rows))
    heads = ["method", "n", *(str(epoch + 1) for epoch in range(longest - 2))]
    return table([heads, *(row + [format.NONE] * (longest - len(row)) for row in rows)])


def _without(record: Record, left_out: tuple[str, ...]) -> Record:
    return replace(record, metrics={k: v for k, v in record.metrics.items() if not k.startswith(left_out)})


@dataclass(frozen=True)
class Answered:
    """A method of a study against one of its baselines.

    Attributes:
        method, baseline: as the protocol names them, with the rates that were chosen.
        accuracy: the pair at these rates.
        speed: the same pair in the part that measures speed, if there is one.
    """

    study: str
    part: Part
    method: str
    baseline: str
    accuracy: Comparison
    speed: Comparison


def answered(drivers: Sequence[Driver]) -> list[Answered]:
    """Every pair of every study, by accuracy."""
    found = []
    for driver in drivers:
        named = [(answer.part, *pair) for answer in answers(driver) for pair in _named(answer, driver)]
        speed = {names: comparison for part, comparison, names in named if part.speed_only}
        for part, comparison, names in named:
            if not part.speed_only:
                rates = [
                    f"{side.runs[0].number(RATE):g}" for side in (comparison.pair.method, comparison.pair.baseline)
                ]
                method, baseline = (f"{name}, rate {rate}" for name, rate in zip(names, rates, strict=True))
                found.append(
                    Answered(driver.study.name, part, method, baseline, comparison, speed.get(names, comparison))
                )
    return found


def _named(answer: Answer, driver: Driver) -> Iterator[tuple[Comparison, tuple[str, str]]]:
    """The pairs of a part, and what the protocol calls both sides."""
    of_run = driver.methods(answer.part)
    for section in answer.tuned.sections if answer.tuned else ():
        for comparison in section.comparisons:
            method, baseline = (
                of_run[side.runs[0].run_id] for side in (comparison.pair.method, comparison.pair.baseline)
            )
            yield comparison, (method, baseline)


HEADINGS = ("study", "method", "baseline", "n", "accuracy against the baseline", "verdict", "samples/s", "verdict")


def overview(pairs: Sequence[Answered]) -> str:
    """One row for each pair: does it help, by how much, how sure."""
    rows = [list(HEADINGS)]
    for one in pairs:
        sides = (one.accuracy.pair.method, one.accuracy.pair.baseline)
        rows.append(
            [
                f"[{one.study}](experiments/{one.study}/README.md): {one.part.title}",
                one.method,
                one.baseline,
                " and ".join(str(len(side.runs)) for side in sides),
                format.estimate(one.accuracy.estimates.get(FINAL.name)),
                format.verdict(one.accuracy.verdicts[ACCURACY]),
                format.estimate(one.speed.estimates.get(THROUGHPUT.name)),
                format.verdict(one.speed.verdicts[SPEED]),
            ]
        )
    return table(rows)
