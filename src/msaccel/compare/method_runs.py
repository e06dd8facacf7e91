"""The runs of one method, and which of them count.

A run trains if its final accuracy is at least half that of the best run, of any method or of none, under the same
conditions; where half is no more than chance, as with two classes, halfway from chance to the best. A run whose
accuracy is not a number does not train, nor does one that ended because its gradients were not finite. Every mean in a
table, a file or a verdict is over the runs that train: a mean that includes failed runs describes none of them.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from msaccel.compare.runs import Record
from msaccel.schema import CLASSES
from msaccel.tracking.status import FAILED

SHARE = 0.5  # a run with this share of the best run's accuracy trains; where rates are chosen, of the best median
_FINAL = "final/accuracy"


@dataclass(frozen=True, eq=False)
class MethodRuns:
    """Runs with the same settings, some of which finished or ended because their gradients were not finite.

    Attributes:
        settings: the parameters by which the methods of its set differ, by dotted key; `accel` comes first.
        runs: the finished ones, in the order of seeds; of each seed only the latest that ended by itself counts.
        repeats: further runs of the same seeds, and seeds whose results equal another seed's to the last bit: they only
            repeat numbers, so they are no evidence and not counted.
        unfinished: runs with these settings that failed, were killed or are still running; never averaged. Of those
            that diverged only the ones that count.
        least: the lowest final accuracy of a run that trains; None if accuracies were not measured: every run counts.
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
        """The run of each seed that ended by itself: it finished, or its gradients were not finite."""
        of_seed = {run.seed: run for run in (*filter(diverged, self.unfinished), *self.runs)}
        return [of_seed[seed] for seed in sorted(of_seed)]

    @property
    def attempts(self) -> int:
        """The number of seeds whose run ended by itself."""
        return len(self.ended)

    @property
    def final_accuracies(self) -> dict[int, float]:
        """The final accuracy of every attempt by seed, minus infinity if it does not train; none if not measured."""
        if self.least is None:
            return {}
        trained = {run.seed: run.metrics[_FINAL] for run in self.trained}
        return {run.seed: trained.get(run.seed, -math.inf) for run in self.ended}

    @property
    def known(self) -> Sequence[Record]:
        """The finished runs; if there are none, the unfinished ones."""
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
        """`accum, accel.accum.steps=4`: the settings that distinguish it from the others in its set."""
        others = [f"{key}={value}" for key, value in self.settings.items() if key != "accel" and value]
        return ", ".join([self.accel, *others])

    def param(self, key: str) -> str:
        return self.known[-1].params.get(key, "")

    def number(self, key: str) -> float | None:
        return self.known[-1].number(key)


def is_baseline(method: MethodRuns) -> bool:
    """Whether it trains without any method; loss scaling counts as a method, though it fills no slot."""
    return method.accel == "none" and method.param("loss_scale.mode") in ("", "none")


def diverged(run: Record) -> bool:
    """Whether a run ended because its gradients were not finite, and was not resumed since."""
    return run.status == FAILED and run.tags.get("diverged") == "true"


def least_accuracy(methods: Sequence[MethodRuns]) -> float | None:
    """The lowest final accuracy of a run that trains."""
    every = [run for method in methods for run in method.runs]
    if not any(_FINAL in run.metrics for run in every):
        return None
    classes = every[0].params.get(CLASSES, "")
    chance = 1 / int(classes) if classes.isdecimal() and int(classes) else 0.0
    best = max((value for run in every if math.isfinite(value := run.metrics.get(_FINAL, 0.0))), default=0.0)
    least = SHARE * best
    return least if least > chance else chance + SHARE * (best - chance)


def counted(records: Sequence[Record]) -> str:
    """`2 FAILED, 1 RUNNING`."""
    return ", ".join(f"{many} {status}" for status, many in sorted(Counter(r.status for r in records).items()))
