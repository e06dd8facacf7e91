"""Sentences about hypotheses: what is claimed, what came out, and what we would tell a colleague.

Each follows from an answer; none is written by hand.
"""

from __future__ import annotations

from msaccel.compare.measures import ACCURACY, SPEED, SUCCESS
from msaccel.compare.render import format
from msaccel.compare.statistics import MOST_RUNS
from msaccel.compare.verdicts import DOWN, EQUIVALENT, INCONCLUSIVE, SMALL, UP, written
from msaccel.study.answers import NARROW, NOT_TRAINED, Answer
from msaccel.study.protocol import BETTER, ENDPOINTS, TRAINS, Hypothesis, StudyPart
from msaccel.study.protocol import EQUIVALENT as AS_GOOD

_CLAIMS = {
    (ACCURACY, BETTER): "ends more accurate than {baseline}",
    (ACCURACY, AS_GOOD): "ends as accurate as {baseline}, within {margin}",
    (SPEED, BETTER): "trains faster than {baseline}",
    (SPEED, AS_GOOD): "trains as fast as {baseline}, within {margin}",
    (SUCCESS, BETTER): "trains more often than {baseline}",
}
_ADVICE = {  # by the beginning of an answer, of which the first counts
    UP[ACCURACY]: "{method} ends more accurate than {baseline}: {effect}.",
    DOWN[ACCURACY]: "Do not use it for accuracy: {method} ends less accurate than {baseline}, {effect}.",
    UP[SPEED]: "{method} trains faster than {baseline}: {effect} of the samples/s.",
    DOWN[SPEED]: "Do not use it for speed: {method} trains slower than {baseline}, {effect} of the samples/s.",
    UP[SUCCESS]: "{method} trains more often than {baseline}: {trains} runs.",
    DOWN[SUCCESS]: "Do not use it for stability: {method} trains less often than {baseline}, {trains} runs.",
    EQUIVALENT: "Take either: {method} and {baseline} are {words}.",
    SMALL: "Take either: {method} and {baseline} differ, by less than the margin of {margin}: {effect}.",
    INCONCLUSIVE: "We cannot tell whether {method} {claim}: {doubt}.",
    NARROW: "We cannot tell whether {method} {claim}: a best rate lies at an end of the rates that were tried.",
    NOT_TRAINED: "Not trained yet: whether {method} {claim}.",
    "": "We cannot tell whether {method} {claim} ({words}).",
}
_RESULTS = {True: "confirmed", False: "refuted", None: "undecided"}


def claimed(hypothesis: Hypothesis) -> str:
    """What a hypothesis says of its method: `ends as accurate as batch 128, within ± 0.1 points`."""
    question = ENDPOINTS[hypothesis.endpoint]
    said = _CLAIMS[question, hypothesis.kind].format(baseline=hypothesis.baseline, margin=_margin(hypothesis))
    return f"{said}, both at rate {hypothesis.rate:g}" if hypothesis.rate else said


def result(given: Answer) -> str:
    """What became of the claim."""
    return _RESULTS[given.holds]


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


def visible(hypothesis: Hypothesis, given: Answer) -> str:
    """The smallest effect that runs as these show in 8 of 10 studies: `0.12 points`."""
    smallest = given.estimate.visible if given.estimate else None
    return format.NONE if smallest is None else written(ENDPOINTS[hypothesis.endpoint], smallest)


def sure(hypothesis: Hypothesis, given: Answer) -> str:
    """`n = 20 and 20, visible from 0.12 points on`; where that is inconclusive also how many runs would decide."""
    if given.estimate is None:
        return format.NONE
    said = f"n = {' and '.join(map(str, given.estimate.n))}"
    if given.estimate.visible is None:
        return said
    said = f"{said}, visible from {visible(hypothesis, given)} on"
    if given.words != INCONCLUSIVE:
        return said
    needed = given.estimate.needed(hypothesis.margin / 100)
    many = f"about {needed}" if needed else f"more than {MOST_RUNS}"
    return f"{said}; to decide within {_margin(hypothesis)} takes {many} a side"


def verdict(part: StudyPart, given: Answer) -> str:
    """The answer as a paragraph of the card."""
    hypothesis = part.hypothesis
    assert hypothesis
    found = ", ".join(text for text in (effect(hypothesis, given), sure(hypothesis, given)) if text != format.NONE)
    return (
        f"**Hypothesis:** {hypothesis.method} {claimed(hypothesis)}. **{result(given).capitalize()}:** {given.words}"
        f"{f' ({found})' if found else ''}. Looks at n = {', '.join(map(str, part.seeds))}, each at {part.level:.0%}. "
        "All else in this part is descriptive."
    )


def advice(hypothesis: Hypothesis, given: Answer) -> str:
    """What we would tell a colleague."""
    sentence = next(text for words, text in _ADVICE.items() if given.words.startswith(words.partition("{")[0]))
    doubt = f"{trains(given)} train" if hypothesis.endpoint == TRAINS else sure(hypothesis, given)
    return sentence.format(
        method=hypothesis.method,
        baseline=hypothesis.baseline,
        claim=claimed(hypothesis),
        words=given.words,
        margin=_margin(hypothesis).removeprefix("± "),
        effect=format.estimate(given.estimate),
        trains=trains(given),
        doubt="the runs have no spread to judge by" if doubt == format.NONE else doubt,
    )


def _margin(hypothesis: Hypothesis) -> str:
    return written(ENDPOINTS[hypothesis.endpoint], hypothesis.margin / 100, sign=True)
