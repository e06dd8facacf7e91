"""The protocol of a study, `experiments/<name>/study.yaml`, checked against the dataclasses here.

A part of a study is one comparison. Every method is tried at every rate with the first seeds; its best rate by
validation accuracy and the neighbouring rates are then trained with all seeds. With a single rate nothing is tuned.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException

from msaccel.config.messages import sentence
from msaccel.errors import ConfigError
from msaccel.files import ROOT

EXPERIMENTS = ROOT / "experiments"
_MISSING: Any = "???"


@dataclass
class StudyPart:
    """One comparison.

    Attributes:
        title: the part's heading in the card.
        common: overrides of every job.
        methods: further overrides of each method, by its name in plots.
        rates: values of `optimizer.lr` in rising order; every method is tried at all of them.
        seeds: number of seeds at the chosen rates: 0, 1, …
        trial_seeds: number of seeds at every rate, the first ones.
        margin: the difference of accuracies, in points, that is too small to matter; null: that of the workload.
        neighbours: number of rates on each side of the best one that are trained with all seeds too.
        beside: jobs at a time. With more than one, times are left out: jobs that share a machine slow each other down.
        seconds: average time of a job on the machine of the last card; only for the estimate.
        judged: whether the methods are compared with their baselines; otherwise the part only measures.
        speed_only: leave accuracies out, since nothing is tuned.
        by_epoch: whether the card also shows the accuracy after each epoch, at the chosen rates.
    """

    title: str = _MISSING
    methods: dict[str, list[str]] = _MISSING
    rates: list[float] = _MISSING
    common: list[str] = field(default_factory=list)
    seeds: int = 5
    trial_seeds: int = 4
    margin: float | None = None
    neighbours: int = 1
    beside: int = 2
    seconds: float = _MISSING
    judged: bool = True
    speed_only: bool = False
    by_epoch: bool = False

    @property
    def first_seeds(self) -> int:
        """The number of seeds of the trials: one where there is only one rate, and so nothing to choose."""
        return min(self.trial_seeds, self.seeds) if len(self.rates) > 1 else 1


@dataclass
class Study:
    """A folder of `experiments/`, with the parts of its question by name."""

    name: str
    parts: dict[str, StudyPart] = _MISSING

    @property
    def card(self) -> Path:
        return EXPERIMENTS / self.name / "README.md"

    @property
    def plot_file(self) -> Path:
        return EXPERIMENTS / self.name / "rates.png"


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
    except OmegaConfBaseException as error:
        raise ConfigError(f"{path} is no protocol of a study: {sentence(error)}") from error
    for key, part in study.parts.items():
        if not part.rates or part.rates != sorted(set(part.rates)):
            raise ConfigError(f"{path}: parts.{key}.rates={part.rates} must rise; write them in order, each once.")
        if part.margin is not None and not 0 < part.margin <= 100:
            raise ConfigError(
                f"{path}: parts.{key}.margin={part.margin} is no number of points; write 0.2, for example."
            )
        if part.seeds < 1 or part.beside < 1:
            raise ConfigError(f"{path}: parts.{key} needs at least one seed and one job at a time; write 1 or more.")
    found: Study = study
    return found
