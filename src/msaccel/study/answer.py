"""What a study found, from MLflow: the text of its card, its picture, and the table over all studies."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from msaccel.compare import shown
from msaccel.compare.card import provenance
from msaccel.compare.collect import Record
from msaccel.compare.markdown import section_text, table
from msaccel.compare.measures import ACCURACY, FINAL, SPEED, THROUGHPUT
from msaccel.compare.report import Report, Section, build
from msaccel.compare.verdicts import Versus
from msaccel.errors import UserError
from msaccel.jobfolder import FINISHED
from msaccel.study.driver import Driver
from msaccel.study.jobs import RATE
from msaccel.study.protocol import Part

_TIMES = ("time/", "throughput/")
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
        if part.beside > 1:
            records = [_without_times(record) for record in records]
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
            yield table([shown.heads(found), *(shown.row(method, found) for method in found.methods)])


def _by_epoch(answer: Answer, driver: Driver) -> str:
    """Means over seeds at every evaluation: the points that could be cut out of a schedule before its end."""
    of_run = {run.run_id: job.method for job, run in driver.known.of(driver.jobs(answer.part)).items()}
    rows: list[list[str]] = []
    for section in (answer.tuned or answer.every).sections:
        for method in section.found.methods:
            histories = [driver.client.get_metric_history(run.run_id, "eval/accuracy") for run in method.runs]
            accuracies = [[point.value for point in sorted(h, key=lambda point: point.step)] for h in histories]
            cells = [shown.average(at, FINAL.shown) for at in zip(*accuracies, strict=False)]
            rows.append([of_run[method.runs[0].run_id], str(len(method.runs)), *cells])
    longest = max(map(len, rows))
    heads = ["method", "n", *(str(epoch + 1) for epoch in range(longest - 2))]
    return table([heads, *(row + [shown.NONE] * (longest - len(row)) for row in rows)])


def _without_times(record: Record) -> Record:
    return replace(record, metrics={k: v for k, v in record.metrics.items() if not k.startswith(_TIMES)})


HEADINGS = ("study", "method", "baseline", "n", "accuracy against the baseline", "verdict", "samples/s", "verdict")


def compared(drivers: Sequence[Driver]) -> list[tuple[Driver, Section, Versus]]:
    """Every pair of every study."""
    return [
        (driver, section, versus)
        for driver in drivers
        for answer in answers(driver)
        for section in (answer.tuned.sections if answer.tuned else ())
        for versus in section.versus
    ]


def overview(pairs: Sequence[tuple[Driver, Section, Versus]]) -> str:
    """One row for each pair: does it help, by how much, how sure."""
    rows = [list(HEADINGS)]
    for driver, section, versus in pairs:
        name, found = driver.study.name, versus.estimates
        rows.append(
            [
                f"[{name}](experiments/{name}/README.md): {section.title}",
                versus.pair.method.label,
                f"{versus.pair.name} ({versus.pair.baseline.label})",
                " and ".join(str(len(side.runs)) for side in (versus.pair.method, versus.pair.baseline)),
                shown.estimate(found.get(FINAL.name)),
                shown.verdict(versus.verdicts[ACCURACY]),
                shown.estimate(found.get(THROUGHPUT.name)),
                shown.verdict(versus.verdicts[SPEED]),
            ]
        )
    return table(rows)
