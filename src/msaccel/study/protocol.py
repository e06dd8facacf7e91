"""The protocol of a study: what `experiments/<name>/study.yaml` declares.

Arms are compared in pairs of the same seed, which have the same weights at first and the same order of samples.

All that could be chosen after seeing results is declared: claim, hypotheses with margins, arms, rates, seeds, the rule
that ends the training, and controls. docs/comparing.md has the statistics.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from msaccel.compare.measures import ACCURACY, FINAL, SPEED, SUCCESS, SUPERIORITY, THROUGHPUT
from msaccel.files import ROOT

EXPERIMENTS = ROOT / "experiments"
BETTER, EQUIVALENT = "better", "equivalent"
TRAINS = "trains"
# The question of a comparison that each answers.
ENDPOINTS = {FINAL.name: ACCURACY, SUPERIORITY: SUPERIORITY, TRAINS: SUCCESS, THROUGHPUT.name: SPEED}
MAX_LOOKS, LEVEL_OF_LOOKS = 3, 0.02  # 10, 20 and 40 seeds at 2 % each give 4.9 % false answers in all
_MISSING: Any = "???"


@dataclass
class Hypothesis:
    """What a part decides. It is the claim's primary hypothesis; everything else in the part is descriptive.

    Attributes:
        method, baseline: names of arms.
        kind: better | equivalent.
        margin: the difference too small to matter: points of accuracy, of the share that trains or from an even chance,
            per cent of speed.
        endpoint: final_accuracy | superiority | trains | samples_per_sec. Superiority is the probability that a run of
            the method ends above one of the baseline, with all runs, failed ones lowest.
        rate: of both sides; null: each at its best rate by validation accuracy.
    """

    method: str = _MISSING
    baseline: str = _MISSING
    kind: str = _MISSING
    margin: float = _MISSING
    endpoint: str = FINAL.name
    rate: float | None = None


@dataclass
class Controls:
    """Results that must come out if the protocol works, each with as many seeds as the first look.

    Attributes:
        planted: a multiple of the baseline's rate at which it must be found worse in final accuracy.
        again: first seed of further runs of the baseline, which must not be found to differ from its first ones.
    """

    planted: float = _MISSING
    again: int = 1000


@dataclass
class StudyPart:
    """One comparison.

    Attributes:
        title: the part's heading in the card.
        arms: overrides of each arm, by its name in tables and plots.
        common: overrides of every job.
        rates: values of `optimizer.lr` in rising order; arms without rates of their own are trained at all of them.
        own_rates: as many others, by the name of an arm, where another optimizer needs them; write 2.0, not 2.
        extend: how often a grid grows, by half its lowest or twice its highest rate, while an arm's best is there.
        seeds: numbers of seeds after which the hypothesis is looked at; training ends once it is decided.
        first_seed: the lowest seed. A claim that earlier runs suggested is judged on seeds that those did not have.
        settles: earlier parts that left the question of this one undecided; once it is complete it counts for them.
        level: of each look.
        hypothesis: null: the part only measures.
        controls: null: none.
        trial_seeds: number of seeds at every rate; the best one of each arm and its neighbours get all.
        neighbours: number of rates on each side of the best one that get all seeds too.
        speed: measure speed alone: rounds, one for each seed, in which all arms take turns in one process.
        beside: jobs at a time. With more than one, times are left out: jobs that share a machine slow each other down.
        seconds: average time of a job; for the estimate, until three jobs have been measured.
    """

    title: str = _MISSING
    arms: dict[str, list[str]] = _MISSING
    rates: list[float] = _MISSING
    seconds: float = _MISSING
    common: list[str] = field(default_factory=list)
    own_rates: dict[str, list[float]] = field(default_factory=dict)
    extend: int = 3
    seeds: list[int] = field(default_factory=lambda: [10, 20, 40])
    first_seed: int = 0
    settles: list[str] = field(default_factory=list)
    level: float = LEVEL_OF_LOOKS
    hypothesis: Hypothesis | None = None
    controls: Controls | None = None
    trial_seeds: int = 4
    neighbours: int = 1
    speed: bool = False
    beside: int = 2

    @property
    def grids(self) -> dict[str, list[float]]:
        """The rates of each arm."""
        return {arm: self.own_rates.get(arm, self.rates) for arm in self.arms}

    @property
    def tuned(self) -> bool:
        """Whether each arm is judged at its own best rate."""
        return len(self.rates) > 1 and not (self.hypothesis and self.hypothesis.rate)

    @property
    def margin(self) -> float | None:
        """The margin of accuracy, as a share of 1; None: that of the workload."""
        hypothesis = self.hypothesis
        return hypothesis.margin / 100 if hypothesis and hypothesis.endpoint == FINAL.name else None

    @property
    def first_seeds(self) -> int:
        """The number of seeds at every rate."""
        return min(self.trial_seeds, self.seeds[0]) if self.tuned else self.seeds[0]

    def asks_again(self, earlier: StudyPart) -> bool:
        """Whether this part compares another one's jobs, with as strict a margin, on seeds that it does not have."""
        own, theirs = self.hypothesis, earlier.hypothesis
        if own is None or theirs is None or self._compared(own) != earlier._compared(theirs):
            return False
        is_as_strict = own.endpoint != theirs.endpoint or own.margin <= theirs.margin
        return is_as_strict and self.first_seed >= earlier.first_seed + earlier.seeds[-1]

    def _compared(self, hypothesis: Hypothesis) -> tuple[object, ...]:
        """The two arms of the hypothesis, with all their overrides, and what it says of them."""
        arms = (hypothesis.method, hypothesis.baseline)
        overrides = ([*self.common, *self.arms.get(arm, ())] for arm in arms)
        return (hypothesis.kind, arms, [dict(one.split("=", 1) for one in every) for every in overrides])

    def seed_range(self, n: int) -> range:
        """The first n seeds."""
        return range(self.first_seed, self.first_seed + n)


@dataclass
class Study:
    """A folder of `experiments/`.

    Attributes:
        claim: what the method's source says, in one sentence.
        parts: comparisons, by name.
        tolerance: points by which a published accuracy may differ when it is trained again on another machine.
    """

    name: str
    claim: str = _MISSING
    parts: dict[str, StudyPart] = _MISSING
    tolerance: float = 1.0

    @property
    def card(self) -> Path:
        return EXPERIMENTS / self.name / "README.md"

    @property
    def plot_file(self) -> Path:
        return EXPERIMENTS / self.name / "rates.png"

    def looks(self, part: StudyPart) -> int:
        """How often the question of a part is looked at, by that part and those that it settles."""
        return sum(len(one.seeds) for one in (part, *(self.parts[key] for key in part.settles)))

    def settled_by(self, part: StudyPart) -> StudyPart | None:
        """The later part that asks the question of this one again."""
        return next((later for later in self.parts.values() for key in later.settles if self.parts[key] is part), None)
