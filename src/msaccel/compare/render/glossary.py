"""Explanations of words in a report that not every reader knows."""

from __future__ import annotations

import html
import inspect
import re
import sys
from functools import cache

from msaccel.accel import methods

TERMS = {
    "baseline": "The same training without the method: what the method is compared with.",
    "method": "One way of training with all its settings: an accelerator such as accum, or none.",
    "update": "One optimizer step.",
    "sample": "One example of the training data that was computed with, for example one image.",
    "epoch": "One pass over the training data.",
    "batch_size": "The micro-batch: how many samples are computed with at once.",
    "micro-batch": "The samples that are computed with at once; accumulation makes one update from several.",
    "global batch": "All samples of one update, over micro-batches and ranks.",
    "seed": "The number from which a run draws its random numbers: runs that differ in it alone show what is chance.",
    "n": "How many seeds the numbers are of.",
    "trained": "Of so many seeds, these ended with at least half the accuracy of the best run; numbers are of them "
    "alone.",
    "±": "The sample standard deviation over the seeds.",
    "interval": "Would be around the true value in 95 of 100 such experiments.",
    "p": "How often chance alone would show a difference at least this large if there were none; after Holm’s "
    "correction, which keeps a report with many comparisons from finding one by chance. It must not exceed the level, "
    "0.05 unless a study declares another.",
    "better": "Final accuracy is higher, and p is at most the level.",
    "worse": "Final accuracy is lower, and p is at most the level.",
    "trains more often": "More of its runs end with at least half the accuracy of the best run, and p is at most the "
    "level.",
    "trains less often": "Fewer of its runs end with at least half the accuracy of the best run, and p is at most the "
    "level.",
    "superior": "A run ends above one of the baseline in more than half of all pairs, and p is at most the level.",
    "inferior": "A run ends above one of the baseline in less than half of all pairs, and p is at most the level.",
    "of pairs": "Of all pairs of a run with and a run without the method: those in which the first ends more accurate. "
    "Runs that do not train are the lowest, a tie counts half, and 50 % is no effect.",
    "faster": "Samples/s are more, and p is at most the level.",
    "slower": "Samples/s are fewer, and p is at most the level.",
    "margin": "The largest difference that does not matter, declared before training.",
    "equivalent": "Any difference is shown to be smaller than the margin (p is that of two one-sided tests).",
    "differs by less": "There is a difference, and it is shown to be smaller than the margin.",
    "inconclusive": "Neither a difference nor equivalence is shown: the runs are too few to tell.",
    "n too small": "A side has fewer than three seeds, too few to tell a difference from chance.",
    "no verdict": "The runs allow no fair test, for the reason that is given.",
    "not measured": "The runs have no such number.",
    "simulated": "Several ranks took turns in one process: accuracies are real, times mean nothing.",
    "points": "Percentage points: from 97 % to 98 % is one point.",
    "×": "How many times the baseline’s: 2 × is twice as much, 0.5 × half.",
    "final accuracy": "Share of the test set that is classified correctly after training.",
    "lowest": "Final accuracy of the worst seed.",
    "best accuracy": "Test accuracy at the evaluation that did best on the validation data.",
    "samples/s": "Samples used for training in each second of training.",
    "training s": "Seconds of training, without compiling, evaluation and logging.",
    "samples to target": "Samples used until an evaluation reached the target accuracy.",
    "updates to target": "Updates until an evaluation reached the target accuracy.",
    "seconds to target": "Seconds of training until an evaluation reached the target accuracy.",
    "workload": "A network with its data: what is trained.",
    "improves": "How probable it is that a run with the method ends above one without, a tie counting half.",
    "width": "How wide the range of good learning rates is, in doublings: 1 is a factor of two.",
    "reached": "How many seeds reached the target accuracy within their budget.",
    "restricted mean": "The mean time until the target or the end of the budget, whichever comes first.",
    "log-rank": "A test whether two groups reach the target at the same times, which counts runs that never do.",
    "peak MB": "The most memory that the process held at once, in 10⁶ bytes.",
    "sent MB": "What a rank has handed to the others, in 10⁶ bytes.",
    "forward-equivalents": "What training cost, counted in forward passes: 3 for a sample’s gradient, 1 for a trial.",
    "loss": "What training minimises: how far the network’s answers are from the labels.",
    "fp32": "Floating point of 32 bits.",
    "fp16": "Floating point of 16 bits, with less range and precision than fp32.",
    "bf16": "bfloat16: floating point of 16 bits, with the range of fp32 and less precision.",
}


def terms(page: str) -> dict[str, str]:
    """The terms that occur in a page (HTML without its styles) or in the explanation of a term that does."""
    text = html.unescape(re.sub(r"<[^>]*>", " ", page))
    found: set[str] = set()
    known = TERMS | _of_methods()
    while news := {term for term in known.keys() - found if _stands_in(term, text)}:
        found |= news
        text = " ".join(known[term] for term in news)
    return {term: meaning for term, meaning in known.items() if term in found}


@cache
def _of_methods() -> dict[str, str]:
    """What each method's package says in its first line."""
    packages = {name: sys.modules[type(method).__module__] for name, method in methods().items()}
    return {name: (inspect.getdoc(package) or "").partition("\n")[0] for name, package in packages.items()}


def _stands_in(term: str, text: str) -> bool:
    """Whether a term occurs as a word or its plural; `p` and `n` only count before a number."""
    pattern = rf"\b{term} [=<]" if len(term) == 1 and term.isalpha() else rf"(?<!\w){re.escape(term)}(s|es)?(?!\w)"
    return re.search(pattern, text, re.IGNORECASE) is not None
