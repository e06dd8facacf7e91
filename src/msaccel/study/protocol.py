"""The protocol of a study, `experiments/<name>/study.yaml`, checked against the dataclasses here.

Arms are compared in pairs of the same seed, which have the same weights at first and the same order of samples.

All that could be chosen after seeing results is declared: claim, hypotheses with margins, arms, rates, seeds, the rule
that ends the training, and controls. docs/comparing.md has the statistics.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml
from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException

from msaccel.compare.measures import ACCURACY, FINAL, SPEED, SUCCESS, SUPERIORITY, THROUGHPUT
from msaccel.compare.statistics import LEVEL
from msaccel.compare.superiority import least_p
from msaccel.compare.tuning import MIN_SEEDS
from msaccel.config.messages import sentence
from msaccel.errors import ConfigError
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
        by_epoch: whether the card also shows the accuracy after each epoch, at the chosen rates.
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
    by_epoch: bool = False

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
        """Whether this part compares the methods of another one, on seeds that the other does not have."""
        own, theirs = (
            (part.hypothesis and (part.hypothesis.method, part.hypothesis.baseline)) for part in (self, earlier)
        )
        return own is not None and own == theirs and self.first_seed >= earlier.first_seed + earlier.seeds[-1]

    def seed_range(self, n: int) -> range:
        """The first n seeds."""
        return range(self.first_seed, self.first_seed + n)

    def problems(self) -> Iterator[str]:
        """What is wrong with the values: the key, and what to write instead."""
        hypothesis, controls = self.hypothesis, self.controls
        for key, rates in [("rates", self.rates), *((f"own_rates.{arm}", own) for arm, own in self.own_rates.items())]:
            if not rates or rates != sorted(set(rates)) or rates[0] <= 0:
                yield f"{key}={rates} must rise; write positive numbers in order, each once"
        for arm, rates in self.own_rates.items():
            if arm not in self.arms:
                yield f"own_rates.{arm} is no arm; write one of {', '.join(self.arms)}"
            elif len(rates) != len(self.rates):
                yield f"own_rates.{arm}={rates} are {len(rates)} rates; write {len(self.rates)}, as many as others have"
        if not self.seeds or self.seeds != sorted(set(self.seeds)) or self.seeds[0] < 1:
            yield f"seeds={self.seeds} must rise; write [10, 20, 40], or one number"
        elif len(self.seeds) > 1 and not hypothesis:
            yield f"seeds={self.seeds} ends when a hypothesis is decided, and there is none; write one number"
        elif len(self.seeds) > MAX_LOOKS:
            yield f"seeds={self.seeds} are {len(self.seeds)} looks; write at most {MAX_LOOKS}"
        most = LEVEL if len(self.seeds) == 1 else LEVEL_OF_LOOKS
        if not 0 < self.level <= most:
            yield f"level={self.level:g} is not that of {len(self.seeds)} looks; write level: {most:g} or less"
        if self.first_seed < 0:
            yield f"first_seed={self.first_seed} is no seed; write 0, or 100 for seeds that other parts do not have"
        if self.beside < 1 or self.trial_seeds < 1 or self.neighbours < 0 or self.extend < 0 or not self.seconds > 0:
            yield "needs at least one job at a time and one seed; write 1 or more, and 0 or more for the other numbers"
        if self.tuned and self.seeds and self.first_seeds < MIN_SEEDS:
            yield (
                f"trial_seeds={self.trial_seeds} and seeds={self.seeds} choose a rate by {self.first_seeds} runs; "
                f"write trial_seeds: {MIN_SEEDS} and seeds of at least as many, or one rate"
            )
        if self.speed and (self.beside > 1 or len(self.rates) > 1 or self.own_rates or controls):
            yield "speed=true measures one round at a time at one rate, without controls; write beside: 1 and one rate"
        after = self.first_seed + self.seeds[-1] if self.seeds else 0
        if controls and not (self.margin and controls.planted > 0 and controls.again >= after):
            again = max(after, 1000)
            yield (
                f"controls need a hypothesis about {FINAL.name}, planted above 0 and again from {after} on; "
                f"write again: {again}"
            )
        if hypothesis:
            yield from self._doubts(hypothesis)

    def _doubts(self, hypothesis: Hypothesis) -> Iterator[str]:
        for side in ("method", "baseline"):
            if getattr(hypothesis, side) not in self.arms:
                names = ", ".join(self.arms)
                yield f"hypothesis.{side}={getattr(hypothesis, side)} is no arm; write one of {names}"
        if hypothesis.method == hypothesis.baseline:
            yield f"hypothesis.baseline={hypothesis.baseline} is the method too; write another arm"
        if hypothesis.kind == EQUIVALENT and hypothesis.endpoint == TRAINS:
            yield f"hypothesis.kind={EQUIVALENT} cannot be shown of endpoint={TRAINS}; write kind: {BETTER}"
        if hypothesis.endpoint == THROUGHPUT.name and not self.speed:
            yield f"hypothesis.endpoint={THROUGHPUT.name} is for parts that measure speed alone; write speed: true"
        if self.speed and hypothesis.endpoint != THROUGHPUT.name:
            yield f"speed=true measures no {hypothesis.endpoint}; write endpoint: {THROUGHPUT.name}"
        if hypothesis.kind not in (BETTER, EQUIVALENT):
            yield f"hypothesis.kind={hypothesis.kind} is not known; write {BETTER} or {EQUIVALENT}"
        if hypothesis.endpoint not in ENDPOINTS:
            yield f"hypothesis.endpoint={hypothesis.endpoint} is not known; write one of {', '.join(ENDPOINTS)}"
        if not 0 < hypothesis.margin <= 100:
            yield f"hypothesis.margin={hypothesis.margin:g} is no number of points or per cent; write 0.2, for example"
        elif hypothesis.endpoint == SUPERIORITY and hypothesis.margin >= 50:
            yield f"hypothesis.margin={hypothesis.margin:g} holds every probability; write 10, for example"
        if hypothesis.endpoint == SUPERIORITY and self.seeds and least_p(self.seeds[0]) > self.level:
            least = next(n for n in itertools.count(1) if least_p(n) <= self.level)
            yield f"seeds={self.seeds} cannot show {SUPERIORITY} at level {self.level:g}; begin with {least} or more"
        if hypothesis.rate and self.own_rates:
            yield f"hypothesis.rate={hypothesis.rate:g} is one for both, and arms have own_rates; leave one of them out"
        elif hypothesis.rate and hypothesis.rate not in self.rates:
            yield f"hypothesis.rate={hypothesis.rate:g} is not trained; write one of {self.rates}"


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

    def problems(self) -> Iterator[str]:
        """What is wrong with the values: the key, and what to write instead."""
        titles = [part.title for part in self.parts.values()]
        if not titles or len({*titles}) < len(titles):
            yield "parts needs at least one part, and each a title of its own"
        earlier: dict[str, StudyPart] = {}
        for key, part in self.parts.items():
            yield from (f"parts.{key}: {problem}" for problem in part.problems())
            for name in part.settles:
                if name not in earlier:
                    yield f"parts.{key}: settles={name} is no earlier part; write one of {', '.join(earlier) or 'none'}"
                elif not part.asks_again(earlier[name]):
                    yield (
                        f"parts.{key}: settles={name} has another method or baseline, or seeds of this part; "
                        "write the same hypothesis.method and baseline, and first_seed after its seeds"
                    )
            earlier[key] = part


def names() -> list[str]:
    """The names of all studies, sorted."""
    return sorted(path.parent.name for path in EXPERIMENTS.glob("*/study.yaml"))


def load(name: str) -> Study:
    """The protocol of a study.

    Raises:
        ConfigError: there is no such study, or its file is invalid.
    """
    if name not in names():
        raise ConfigError(f"study {name} does not exist; write one of {', '.join(names())}.")
    path = EXPERIMENTS / name / "study.yaml"
    try:
        merged = OmegaConf.merge(OmegaConf.structured(Study(name)), OmegaConf.load(path))
        study: Any = OmegaConf.to_object(merged)
    except (OmegaConfBaseException, yaml.YAMLError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path} is no protocol of a study: {sentence(error)}") from error
    for problem in study.problems():
        raise ConfigError(f"{path}: {problem}.")
    found: Study = study
    return found
