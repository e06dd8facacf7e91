"""Sentences about hypotheses: what is claimed, what came out, and what we would tell a colleague.

Each follows from an answer; none is written by hand.
"""

from __future__ import annotations

from msaccel.compare.measures import ACCURACY, SPEED, SUPERIORITY, THROUGHPUT
from msaccel.compare.method_runs import MethodRuns
from msaccel.compare.render import format
from msaccel.compare.statistics import LEVEL, MAX_RUNS
from msaccel.compare.success import runs_needed
from msaccel.compare.verdicts import UP, Verdict, format_margin, two_digits
from msaccel.study.answers import Answer
from msaccel.study.protocol import BETTER, ENDPOINTS, TRAINS, Hypothesis, StudyPart

_FOUND = {
    Verdict.BETTER: "reaches a higher accuracy than {baseline}",
    Verdict.WORSE: "reaches a lower accuracy than {baseline}",
    Verdict.FASTER: "trains faster than {baseline}",
    Verdict.SLOWER: "trains slower than {baseline}",
    Verdict.MORE_OFTEN: "trains more often than {baseline}",
    Verdict.LESS_OFTEN: "trains less often than {baseline}",
    Verdict.SUPERIOR: "beats {baseline} in most pairs of runs",
    Verdict.INFERIOR: "loses to {baseline} in most pairs of runs",
}
_AS_GOOD = {
    ACCURACY: "is as accurate as {baseline}, within {margin}",
    SPEED: "trains as fast as {baseline}, within {margin}",
    SUPERIORITY: "beats {baseline} in half of all pairs of runs, within {margin}",
}
_ADVICE = {
    **dict.fromkeys(UP.values(), "{method} {found}: {size}."),
    Verdict.WORSE: "Do not use it for accuracy: {method} {found}, {size}.",
    Verdict.SLOWER: "Do not use it for speed: {method} {found}, {size}.",
    Verdict.LESS_OFTEN: "Do not use it for stability: {method} {found}, {size}.",
    Verdict.INFERIOR: "Do not use it: {method} {found}, {size}.",
    Verdict.EQUIVALENT: "No difference that matters: {method} and {baseline} are {words}.",
    Verdict.SMALL: "No difference that matters: {method} and {baseline} differ by less than {margin}: {size}.",
    Verdict.INCONCLUSIVE: "We cannot tell whether {method} {claim}: {doubt}.",
    Verdict.UNEQUAL_SHARES: "We cannot tell whether {method} {claim}: {trains} train; {doubt}.",
    Verdict.NARROW: "We cannot tell whether {method} {claim}: a best rate lies at an end of the rates that were tried.",
    Verdict.NOT_TRAINED: "Not trained yet: whether {method} {claim}.",
}
_NO_VERDICT = "We cannot tell whether {method} {claim} ({words})."
INSIDE_THE_MARGIN = (
    "Inside the margin, which was declared before training (grey), a difference does not matter. Answers are tests at "
    "the level that each look declares: they may differ from what the bar suggests where it just misses zero or an end "
    "of the margin."
)
PERHAPS_INSIDE = ", perhaps within the margin"
_RESULTS = {True: "confirmed", False: "refuted", None: "undecided"}


def claimed(hypothesis: Hypothesis) -> str:
    """What a hypothesis says of its method: `is as accurate as batch 128, within ± 0.1 points`."""
    question = ENDPOINTS[hypothesis.endpoint]
    claim = _FOUND[UP[question]] if hypothesis.kind == BETTER else _AS_GOOD[question]
    return claim.format(baseline=hypothesis.baseline, margin=_margin(hypothesis)) + _at_rate(hypothesis)


def _at_rate(hypothesis: Hypothesis) -> str:
    return f", both at rate {hypothesis.rate:g}" if hypothesis.rate else ""


def result(given: Answer) -> str:
    """What became of the claim."""
    return _RESULTS[given.holds] + (PERHAPS_INSIDE if given.perhaps_inside else "")


def effect(hypothesis: Hypothesis, given: Answer) -> str:
    """`+0.03 points [-0.02, +0.08], margin ± 0.1 points, rates 0.02 and 0.04`."""
    if given.estimate is None:
        return format.NONE
    rates = "" if hypothesis.rate else f", rates {' and '.join(f'{rate:g}' for rate in given.rates)}"
    return f"{format.estimate(given.estimate)}, margin {_margin(hypothesis)}{rates}"


def trains(given: Answer) -> str:
    """`20 of 20 against 17 of 20`."""
    if given.pair is None:
        return format.NONE
    return " against ".join(f"{len(side.trained)} of {side.attempts}" for side in given.pair.sides)


def _failed(hypothesis: Hypothesis, given: Answer) -> str:
    """`10 of 10 against 7 of 10 train`, of an answer that is about more; where all train only for superiority."""
    if hypothesis.endpoint == TRAINS or given.pair is None or given.verdict is Verdict.UNEQUAL_SHARES:
        return ""
    return "" if _all_train(given) and hypothesis.endpoint != SUPERIORITY else f"{trains(given)} train"


def _all_train(given: Answer) -> bool:
    return given.pair is None or all(len(side.trained) == side.attempts for side in given.pair.sides)


def visible(hypothesis: Hypothesis, given: Answer) -> str:
    """The smallest effect that runs like these would detect in 8 of 10 studies: `0.12 points`."""
    smallest = given.estimate.visible(given.level) if given.estimate else None
    return format.NONE if smallest is None else format_margin(ENDPOINTS[hypothesis.endpoint], two_digits(smallest))


def sure(hypothesis: Hypothesis, given: Answer) -> str:
    """`n = 20 and 20, visible from 0.12 points on`; where that is inconclusive also what would decide."""
    if given.verdict is Verdict.UNEQUAL_SHARES:
        return f"to decide, declare endpoint: {SUPERIORITY}"
    if hypothesis.endpoint == TRAINS and given.verdict is Verdict.INCONCLUSIVE and given.pair:
        return _to_decide_shares(hypothesis, given.pair.baseline, given.level)
    if given.estimate is None or given.estimate.p is None:
        return format.NONE
    said = f"n = {' and '.join(map(str, given.estimate.n))}"
    smallest = visible(hypothesis, given)
    if smallest == format.NONE:
        return said
    said = f"{said}, visible from {smallest} on"
    if given.verdict is not Verdict.INCONCLUSIVE:
        return said
    needed = given.estimate.needed(hypothesis.margin / 100, given.level)
    many = f"about {needed}" if needed else f"more than {MAX_RUNS}"
    return f"{said}; to decide within {_margin(hypothesis)} takes {many} a side"


def _to_decide_shares(hypothesis: Hypothesis, baseline: MethodRuns, level: float) -> str:
    share, margin = len(baseline.trained) / baseline.attempts, _margin(hypothesis).removeprefix("± ")
    runs = runs_needed(share, hypothesis.margin / 100, level)
    if runs is None:
        return f"no room for {margin} more; to decide, declare a rate at which more runs fail"
    return f"to show {margin} more takes about {runs} a side"


def verdict(part: StudyPart, given: Answer) -> str:
    """The answer as a paragraph of the card."""
    hypothesis = part.hypothesis
    assert hypothesis
    said = effect(hypothesis, given), sure(hypothesis, given), _failed(hypothesis, given)
    numbers = ", ".join(text for text in said if text not in ("", format.NONE))
    words = f"{given.words} ({numbers})" if numbers else given.words
    looks = f"Looks at n = {', '.join(map(str, part.seeds))}, each at {100 * part.level:.4g}%"
    others = f", at {100 * LEVEL:g}%: where its verdict is another, this one counts" if part.level != LEVEL else ""
    return (
        f"**Hypothesis:** {hypothesis.method} {claimed(hypothesis)}. **{result(given).capitalize()}:** {words}. "
        f"{looks}. All else in this part is descriptive{others}."
    )


def found(hypothesis: Hypothesis, given: Answer) -> str:
    """The difference that was found: `reaches a lower accuracy than batch 128`; empty if none was."""
    said = _FOUND.get(given.verdict, "").format(baseline=hypothesis.baseline)
    return said + _at_rate(hypothesis) if said else ""


def alike(hypothesis: Hypothesis, given: Answer) -> str:
    """Of two sides: `equivalent within ± 0.1 points`, `equally fast within ± 3 %`, `differ by less than 0.1 points`."""
    words = given.words.replace("differs by", "differ by")
    return words.replace("equivalent", "equally fast") if ENDPOINTS[hypothesis.endpoint] == SPEED else words


def advice(hypothesis: Hypothesis, given: Answer, doubted: bool = False) -> str:
    """What we would tell a colleague.

    Args:
        doubted: whether the answer would not stand if all claims were judged as one family.
    """
    size, doubt = format.estimate(given.estimate), sure(hypothesis, given)
    if hypothesis.endpoint == TRAINS:
        size, doubt = f"{trains(given)} runs", f"{trains(given)} train; {doubt}"
    elif hypothesis.endpoint == THROUGHPUT.name:
        size += " of its samples/s"
    if failed := _failed(hypothesis, given):
        size += f"; {failed}"
    if given.perhaps_inside:
        size += PERHAPS_INSIDE
    if doubt == format.NONE:
        few = "the runs have no spread to judge by, or are too few"
        doubt = few if _all_train(given) else f"{trains(given)} train"
    said = _ADVICE.get(given.verdict, _NO_VERDICT).format(
        method=hypothesis.method,
        baseline=hypothesis.baseline,
        claim=claimed(hypothesis),
        found=found(hypothesis, given),
        words=alike(hypothesis, given),
        margin=_margin(hypothesis).removeprefix("± "),
        size=size,
        doubt=doubt,
        trains=trains(given),
    )
    return said.replace("Do not", "Perhaps do not", 1) if doubted else said


def _margin(hypothesis: Hypothesis) -> str:
    return format_margin(ENDPOINTS[hypothesis.endpoint], hypothesis.margin / 100, sign=True)
