"""Reads the protocol of a study, and says what is wrong with it: the key, and what to write instead."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import yaml
from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException

from msaccel.compare.measures import FINAL, SUPERIORITY, THROUGHPUT
from msaccel.compare.statistics import LEVEL
from msaccel.compare.superiority import least_p
from msaccel.compare.tuning import MIN_SEEDS
from msaccel.config.messages import sentence
from msaccel.errors import ConfigError
from msaccel.study import protocol
from msaccel.study.protocol import (
    BETTER,
    ENDPOINTS,
    EQUIVALENT,
    LEVEL_OF_LOOKS,
    MAX_LOOKS,
    TRAINS,
    Hypothesis,
    Study,
    StudyPart,
)


def names() -> list[str]:
    """The names of all studies, sorted."""
    return sorted(path.parent.name for path in protocol.EXPERIMENTS.glob("*/study.yaml"))


def load(name: str) -> Study:
    """The protocol of a study.

    Raises:
        ConfigError: there is no such study, or its file is invalid.
    """
    if name not in names():
        raise ConfigError(f"study {name} does not exist; write one of {', '.join(names())}.")
    path = protocol.EXPERIMENTS / name / "study.yaml"
    try:
        merged = OmegaConf.merge(OmegaConf.structured(Study(name)), OmegaConf.load(path))
        study: Any = OmegaConf.to_object(merged)
    except (OmegaConfBaseException, yaml.YAMLError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path} is no protocol of a study: {sentence(error)}") from error
    for problem in problems(study):
        raise ConfigError(f"{path}: {problem}.")
    found: Study = study
    return found


def problems(study: Study) -> Iterator[str]:
    """What is wrong with the values of a protocol."""
    titles = [part.title for part in study.parts.values()]
    if not titles or len({*titles}) < len(titles):
        yield "parts needs at least one part, and each a title of its own"
    earlier: dict[str, StudyPart] = {}
    for key, part in study.parts.items():
        yield from (f"parts.{key}: {problem}" for problem in _part_problems(part))
        for name in part.settles:
            if name not in earlier:
                yield f"parts.{key}: settles={name} is no earlier part; write one of {', '.join(earlier) or 'none'}"
            elif not part.asks_again(earlier[name]):
                yield (
                    f"parts.{key}: settles={name} compares other jobs, or with a smaller margin or seeds of this part; "
                    "write the same method, baseline and kind in hypothesis, the same overrides in common and arms, "
                    "no larger margin, and first_seed after its seeds"
                )
        earlier[key] = part


def _part_problems(part: StudyPart) -> Iterator[str]:
    hypothesis, controls = part.hypothesis, part.controls
    for key, rates in [("rates", part.rates), *((f"own_rates.{arm}", own) for arm, own in part.own_rates.items())]:
        if not rates or rates != sorted(set(rates)) or rates[0] <= 0:
            yield f"{key}={rates} must rise; write positive numbers in order, each once"
    for arm, rates in part.own_rates.items():
        if arm not in part.arms:
            yield f"own_rates.{arm} is no arm; write one of {', '.join(part.arms)}"
        elif len(rates) != len(part.rates):
            yield f"own_rates.{arm}={rates} are {len(rates)} rates; write {len(part.rates)}, as many as others have"
    if not part.seeds or part.seeds != sorted(set(part.seeds)) or part.seeds[0] < 1:
        yield f"seeds={part.seeds} must rise; write [10, 20, 40], or one number"
    elif len(part.seeds) > 1 and not hypothesis:
        yield f"seeds={part.seeds} ends when a hypothesis is decided, and there is none; write one number"
    elif len(part.seeds) > MAX_LOOKS:
        yield f"seeds={part.seeds} are {len(part.seeds)} looks; write at most {MAX_LOOKS}"
    most = LEVEL if len(part.seeds) == 1 else LEVEL_OF_LOOKS
    if not 0 < part.level <= most:
        yield f"level={part.level:g} is not that of {len(part.seeds)} looks; write level: {most:g} or less"
    if part.first_seed < 0:
        yield f"first_seed={part.first_seed} is no seed; write 0, or 100 for seeds that other parts do not have"
    if part.beside < 1 or part.trial_seeds < 1 or part.neighbours < 0 or part.extend < 0 or not part.seconds > 0:
        yield "needs at least one job at a time and one seed; write 1 or more, and 0 or more for the other numbers"
    if part.tuned and part.seeds and part.first_seeds < MIN_SEEDS:
        yield (
            f"trial_seeds={part.trial_seeds} and seeds={part.seeds} choose a rate by {part.first_seeds} runs; "
            f"write trial_seeds: {MIN_SEEDS} and seeds of at least as many, or one rate"
        )
    if part.speed and (part.beside > 1 or len(part.rates) > 1 or part.own_rates or controls):
        yield "speed=true measures one round at a time at one rate, without controls; write beside: 1 and one rate"
    after = part.first_seed + part.seeds[-1] if part.seeds else 0
    if controls and not (part.margin and controls.planted > 0 and controls.again >= after):
        again = max(after, 1000)
        yield (
            f"controls need a hypothesis about {FINAL.name}, planted above 0 and again from {after} on; "
            f"write again: {again}"
        )
    if hypothesis:
        yield from _hypothesis_problems(part, hypothesis)


def _hypothesis_problems(part: StudyPart, hypothesis: Hypothesis) -> Iterator[str]:
    for side in ("method", "baseline"):
        if getattr(hypothesis, side) not in part.arms:
            yield f"hypothesis.{side}={getattr(hypothesis, side)} is no arm; write one of {', '.join(part.arms)}"
    if hypothesis.method == hypothesis.baseline:
        yield f"hypothesis.baseline={hypothesis.baseline} is the method too; write another arm"
    if hypothesis.kind == EQUIVALENT and hypothesis.endpoint == TRAINS:
        yield f"hypothesis.kind={EQUIVALENT} cannot be shown of endpoint={TRAINS}; write kind: {BETTER}"
    if hypothesis.endpoint == THROUGHPUT.name and not part.speed:
        yield f"hypothesis.endpoint={THROUGHPUT.name} is for parts that measure speed alone; write speed: true"
    if part.speed and hypothesis.endpoint != THROUGHPUT.name:
        yield f"speed=true measures no {hypothesis.endpoint}; write endpoint: {THROUGHPUT.name}"
    if hypothesis.kind not in (BETTER, EQUIVALENT):
        yield f"hypothesis.kind={hypothesis.kind} is not known; write {BETTER} or {EQUIVALENT}"
    if hypothesis.endpoint not in ENDPOINTS:
        yield f"hypothesis.endpoint={hypothesis.endpoint} is not known; write one of {', '.join(ENDPOINTS)}"
    if not 0 < hypothesis.margin <= 100:
        yield f"hypothesis.margin={hypothesis.margin:g} is no number of points or per cent; write 0.2, for example"
    elif hypothesis.endpoint == SUPERIORITY and hypothesis.margin >= 50:
        yield f"hypothesis.margin={hypothesis.margin:g} holds every probability; write 10, for example"
    if hypothesis.endpoint == SUPERIORITY and part.seeds and least_p(part.seeds[0]) > part.level:
        least = next(n for n in itertools.count(1) if least_p(n) <= part.level)
        yield f"seeds={part.seeds} cannot show {SUPERIORITY} at level {part.level:g}; begin with {least} or more"
    if hypothesis.rate and part.own_rates:
        yield f"hypothesis.rate={hypothesis.rate:g} is one for both, and arms have own_rates; leave one of them out"
    elif hypothesis.rate and hypothesis.rate not in part.rates:
        yield f"hypothesis.rate={hypothesis.rate:g} is not trained; write one of {part.rates}"
