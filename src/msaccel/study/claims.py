"""The primary hypotheses of studies with their answers: the rows of every table and plot over studies."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from msaccel import models
from msaccel.compare.measures import COST, PEAK, SECONDS, SENT, THROUGHPUT, Measure
from msaccel.compare.render import format
from msaccel.compare.statistics import LEVEL, Estimate, holm
from msaccel.compare.verdicts import Verdict
from msaccel.data import sets
from msaccel.study import sentences
from msaccel.study.answers import Answer
from msaccel.study.jobs import parameters_of
from msaccel.study.protocol import BETTER, TRAINS, Hypothesis, StudyPart
from msaccel.study.runner import StudyRunner

COSTS = {"time": SECONDS, "memory": PEAK, "forward work": COST}
OF_RANKS = {"bytes between ranks": SENT}  # few claims have them, so they are no column of the page


@dataclass(frozen=True)
class Claim:
    """What a part of a study decides.

    Attributes:
        study: its name.
        workload: `LeNet on MNIST`.
        times: estimates from the part of the study that measures the speed of the same arms; empty if none does.
        looks: how often its question was looked at, in earlier parts too.
    """

    study: str
    part: StudyPart
    hypothesis: Hypothesis
    answer: Answer
    workload: str
    times: Mapping[str, Estimate]
    looks: int

    @property
    def trained(self) -> bool:
        return self.answer.verdict is not Verdict.NOT_TRAINED

    def cost(self, measure: Measure) -> Estimate | None:
        """The method's share of what the baseline costs."""
        return (self.times if measure.timed else self.answer.every).get(measure.name)

    @property
    def in_margins(self) -> tuple[float, tuple[float, float] | None] | None:
        """The effect and its interval in units of the margin: from -1 to 1 it does not matter."""
        found, margin = self.answer.estimate, self.hypothesis.margin / 100
        if found is None:
            return None
        interval = None
        if found.low is not None and found.high is not None:
            interval = found.in_margins(found.low, margin), found.in_margins(found.high, margin)
        return found.in_margins(found.value, margin), interval

    @property
    def kind(self) -> str:
        """The style's class of its answer: `up`, `down`, `same` or none."""
        return self.answer.verdict.kind

    @property
    def p(self) -> float | None:
        """The p of the test behind its answer, times the number of looks; None without a test."""
        found, hypothesis = self.answer.estimate, self.hypothesis
        if found is None or found.p is None:
            return None
        p, inside = found.p, found.equivalence_p(hypothesis.margin / 100)
        if inside is not None:
            asks_equivalence = hypothesis.kind != BETTER
            if self.kind == "same" or (asks_equivalence and not self.kind):
                p = inside
            elif asks_equivalence and self.answer.holds is False:
                p = 1 - inside  # a difference beyond the margin
        return min(1.0, p * self.looks)

    @property
    def costs(self) -> str:
        """`time 1.020 × [1.011, 1.029], memory 1.010 ×`, as far as they were measured."""
        known = {name: found for name, measure in (COSTS | OF_RANKS).items() if (found := self.cost(measure))}
        said = {name: format.estimate(one) if name == "time" else format.effect(one) for name, one in known.items()}
        return ", ".join(f"{name} {cost}" for name, cost in said.items()) or format.NONE

    @property
    def time(self) -> str:
        """`1.28 × the time`; empty if no difference of time was measured, or the claim is about speed."""
        found = self.cost(SECONDS)
        if self.hypothesis.endpoint == THROUGHPUT.name or not found or found.low is None or found.high is None:
            return ""
        return "" if found.low <= 1 <= found.high else f"{found.value:.2f} × the time"


def claims(runners: Sequence[StudyRunner]) -> list[Claim]:
    """One for each part with a hypothesis, in the order of studies and parts; last those that are not trained yet. Left
    out are undecided ones that a later part has asked again."""
    found: list[Claim] = []
    for runner in runners:
        own = [_claim(runner, part, part.hypothesis) for part in runner.study.parts.values() if part.hypothesis]
        settling = [one.part for one in own if one.part.settles and one.trained and not runner.missing(one.part)]
        found += [one for one in own if one.answer.decided or runner.study.settled_by(one.part) not in settling]
    return sorted(found, key=lambda one: not one.trained)


def _claim(runner: StudyRunner, part: StudyPart, hypothesis: Hypothesis) -> Claim:
    answer, trained = runner.answer(part), workload(runner, part)
    times = _times(runner, trained, hypothesis)
    return Claim(runner.study.name, part, hypothesis, answer, trained, times, runner.study.looks(part))


def _times(runner: StudyRunner, trained: str, hypothesis: Hypothesis) -> Mapping[str, Estimate]:
    requested = replace(hypothesis, endpoint=THROUGHPUT.name, rate=None)
    for part in runner.study.parts.values():
        of_both = part.speed and {hypothesis.method, hypothesis.baseline} <= part.arms.keys()
        if of_both and workload(runner, part) == trained:
            return runner.answer(part, requested).every
    return {}


def workload(runner: StudyRunner, part: StudyPart) -> str:
    """The network and the data of a part."""
    params = parameters_of(runner.jobs(part)[0].settings)
    return f"{models.title(params)} on {sets.title(params['data.name'])}"


def corrected(found: Sequence[Claim]) -> list[float | None]:
    """The p of every claim after Holm's correction over all of them; None without a test."""
    return holm([one.p for one in found])


@dataclass(frozen=True)
class ClaimSummary:
    """What all claims come to.

    Attributes:
        counts: how many are confirmed, refuted and undecided, a sentence.
        findings: by heading, from `Better` to `Undecided`: what was found, and in brackets on which workloads; a
            dagger marks those of `note`.
        note: what the dagger means; empty if there is none.
    """

    counts: str
    findings: dict[str, list[str]]
    note: str


_HEADINGS = {"up": "Better", "same": "No difference that matters", "down": "Worse", "": "Undecided"}
_DAGGER = "†"


def summary(found: Sequence[Claim]) -> ClaimSummary:
    """How many claims are confirmed, and what was found, the gains first."""
    trained = [(one, p) for one, p in zip(found, corrected(found), strict=True) if one.trained]
    many = Counter(one.answer.holds for one, _ in trained)
    confirmed, others = many[True], len(found) - len(trained)
    counts = f"{confirmed} of {len(trained)} claims {'is' if confirmed == 1 else 'are'} confirmed, "
    counts += f"{many[False]} refuted, {many[None]} undecided"
    doubts = Counter(one.answer.holds for one, p in trained if is_doubted(one, p))
    if doubts:
        kept = f"{many[True] - doubts[True]} stay confirmed and {many[False] - doubts[False]} refuted"
        counts += f"; after correction for testing all of them {kept}"
    rest = f"; {others} more {'is' if others == 1 else 'are'} not trained yet" if others else ""
    findings: dict[str, list[str]] = {}
    for kind, heading in _HEADINGS.items():
        of_kind: dict[str, list[str]] = {}
        for one, p in trained:
            if one.kind == kind:
                of_kind.setdefault(_finding(one), []).append(_where(one, p))
        if of_kind:
            findings[heading] = [f"{said} ({', '.join(dict.fromkeys(where))})" for said, where in of_kind.items()]
    doubted = any(_DAGGER in text for texts in findings.values() for text in texts)
    note = f"{_DAGGER} Undecided if all claims are judged as one family (Holm's correction)." if doubted else ""
    return ClaimSummary(f"{counts}{rest}.", findings, note)


def _finding(one: Claim) -> str:
    """`clip trains more often than none`."""
    said = sentences.found(one.hypothesis, one.answer) or sentences.claimed(one.hypothesis)
    if one.kind == "same":
        words = sentences.alike(one.hypothesis, one.answer)
        said = f"and {one.hypothesis.baseline}{'' if words.startswith('differ') else ','} {words}"
    return f"{one.hypothesis.method} {said}"


def _where(one: Claim, p: float | None) -> str:
    """`LeNet on MNIST +0.43 points at 3.29 × the time`, as far as there is a difference and its cost was measured; with
    a dagger if nothing would be found among all others."""
    found = one.answer.estimate
    size = f" {format.effect(found)}" if found and one.kind in ("up", "down") else ""
    if size and one.hypothesis.endpoint == TRAINS:
        size = f" {sentences.trains(one.answer)} runs"
    cost = f" at {one.time}" if one.kind and one.time else ""
    perhaps = sentences.PERHAPS_INSIDE if one.answer.perhaps_inside else ""
    return f"{one.workload}{size}{cost}{perhaps}{_DAGGER if is_doubted(one, p) else ''}"


def is_doubted(one: Claim, p: float | None) -> bool:
    """Whether something was found that would not be with its p after correction."""
    return one.kind != "" and p is not None and p > LEVEL
