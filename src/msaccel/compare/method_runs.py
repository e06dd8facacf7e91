"""The runs of one method, and which of them count.

A run trains if its final accuracy is at least half the median of the best baseline's under the same conditions, or of
the best method's where there is no baseline. One whose accuracy is not a number does not, nor one that ended because
its gradients were not finite. Every mean in a table, a file or a verdict is of the runs that train: a mean over runs
that failed describes none of them.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from msaccel.compare.runs import Record

SHARE = 0.5  # of the best median, from which on a run trains
_FINAL = "final/accuracy"


@dataclass(frozen=True, eq=False)
class MethodRuns:
    """Runs with the same settings, some of which finished or ended because their gradients were not finite.

    Attributes:
        settings: the parameters by which the methods of its set differ, by dotted key; `accel` comes first.
        runs: the finished ones, the latest of each seed, in the order of seeds.
        repeats: further runs of the same seeds, and seeds whose results are those of another one to the last bit: they
            repeat the same numbers, so they are no evidence and not counted.
        unfinished: runs with these settings that failed, were killed or still go on; never averaged.
        least: final accuracy from which on a run trains; None where accuracies were not measured, and every run counts.
    """

    settings: dict[str, str]
    runs: list[Record]
    repeats: int = 0
    unfinished: tuple[Record, ...] = ()
    least: float | None = None

    @property
    def trained(self) -> list[Record]:
        """The runs that count: finished, not diverged, and as accurate as a run that trains."""
        if self.least is None:
            return self.runs
        return [run for run in self.runs if run.metrics.get(_FINAL, -math.inf) >= self.least]

    @property
    def ended(self) -> list[Record]:
        """The run of each seed that came to an end of its own: finished, or ended by gradients that were not finite."""
        of_seed = {run.seed: run for run in (*filter(diverged, self.unfinished), *self.runs)}
        return [of_seed[seed] for seed in sorted(of_seed)]

    @property
    def attempts(self) -> int:
        """The number of seeds that came to an end of their own."""
        return len(self.ended)

    @property
    def known(self) -> Sequence[Record]:
        """The finished runs; where there are none, those that did not finish."""
        return self.runs or self.unfinished

    @property
    def accel(self) -> str:
        return self.settings["accel"]

    @property
    def slots(self) -> list[str]:
        """The accelerators by name; none of `none`."""
        return [] if self.accel == "none" else self.accel.split("+")

    @property
    def label(self) -> str:
        """`accum, accel.accum.steps=4`: the settings that tell it from the others of its set."""
        others = [f"{key}={value}" for key, value in self.settings.items() if key != "accel" and value]
        return ", ".join([self.accel, *others])

    def param(self, key: str) -> str:
        return self.known[-1].params.get(key, "")

    def number(self, key: str) -> float | None:
        return self.known[-1].number(key)


def is_baseline(method: MethodRuns) -> bool:
    """Whether it trains without any method; loss scaling is one, though it fills no slot."""
    return method.accel == "none" and method.param("loss_scale.mode") in ("", "none")


def diverged(run: Record) -> bool:
    """Whether a run ended because its gradients were not finite."""
    return run.tags.get("diverged") == "true"


def least_accuracy(methods: Sequence[MethodRuns]) -> float | None:
    """The final accuracy from which on a run trains."""
    if not any(_FINAL in run.metrics for method in methods for run in method.runs):
        return None
    judged_by = [*filter(is_baseline, methods)] or methods
    ended = ((*method.runs, *filter(diverged, method.unfinished)) for method in judged_by)
    return SHARE * max(statistics.median(run.metrics.get(_FINAL, 0.0) for run in runs) for runs in ended)
