"""The quantities that are compared: their metrics, how they are shown, and how each compares two methods."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from msaccel.compare.method_runs import MethodRuns
from msaccel.compare.runs import Record

DIFFERENCE, RATIO, PROBABILITY = "difference", "ratio", "probability"
ACCURACY, SPEED, SUCCESS, SUPERIORITY = "accuracy", "speed", "success", "superiority"


@dataclass(frozen=True)
class Measure:
    """One measured quantity.

    Attributes:
        name: in JSON and CSV.
        heading: in tables.
        read: its value in one run, None where it has none.
        number_format: a format for one number.
        against: `difference` to the baseline (accuracies), or `ratio` (all that is positive and scales).
        question: the verdict that it decides; a measure without one is only shown, with its interval.
        timed: whether it is a time, which means nothing where ranks are simulated.
    """

    name: str
    heading: str
    read: Callable[[Record], float | None]
    number_format: str
    against: str
    question: str | None = None
    timed: bool = False


def _metric(key: str, unit: float = 1) -> Callable[[Record], float | None]:
    return lambda record: None if (found := record.metrics.get(key)) is None else found / unit


FINAL = Measure("final_accuracy", "final accuracy", _metric("final/accuracy"), "{:.2%}", DIFFERENCE, ACCURACY)
BEST = Measure("best_accuracy", "best accuracy", _metric("best/accuracy"), "{:.2%}", DIFFERENCE)
THROUGHPUT = Measure(
    "samples_per_sec", "samples/s", _metric("throughput/samples_per_sec"), "{:,.0f}", RATIO, SPEED, timed=True
)
SECONDS = Measure("train_s", "training s", _metric("time/train_s"), "{:.1f}", RATIO, timed=True)
PEAK = Measure("peak_mb", "peak MB", _metric("memory/peak_mb"), "{:,.0f}", RATIO)
COST = Measure("forward_equivalents", "forward-equivalents", _metric("cost/forward_equivalents"), "{:,.0f}", RATIO)
SENT = Measure("sent_mb", "sent MB", _metric("comm/bytes", 1e6), "{:,.1f}", RATIO)

MEASURES = (FINAL, BEST, THROUGHPUT, SECONDS, PEAK, COST, SENT)


def values(method: MethodRuns, measure: Measure) -> dict[int, float]:
    """The values by seed, for the runs that train and have a value; there are no times where ranks are simulated."""
    runs = [record for record in method.trained if not (measure.timed and record.simulated)]
    found = {record.seed: measure.read(record) for record in runs}
    return {seed: float(value) for seed, value in found.items() if value is not None}
