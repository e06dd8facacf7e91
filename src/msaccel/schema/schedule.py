"""The keys of the learning rate's schedules."""

from __future__ import annotations

from dataclasses import dataclass

from msaccel.schema.fields import setting


@dataclass
class ScheduleSettings:
    """The learning rate over the job. Lengths are in `unit`: epochs, or fractions of the whole job."""

    name: str = setting()
    unit: str = setting(choices=("epochs", "fraction"))
    warmup: float = setting(at_least=0, example="0.05")


@dataclass
class ConstantSettings(ScheduleSettings):
    """A constant rate."""


@dataclass
class StepSettings(ScheduleSettings):
    milestones: list[float] = setting(above=0, example="[0.5,0.75]")
    gamma: float = setting(above=0, example="0.1")


@dataclass
class DecaySettings(ScheduleSettings):
    """Cosine or linear decay from the peak rate to `final_factor` of it at the job's end."""

    final_factor: float = setting(at_least=0, at_most=1, example="0")


@dataclass
class TrapezoidSettings(DecaySettings):
    """The peak rate between the warm-up and a linear decay of length `decay` at the job's end."""

    decay: float = setting(at_least=1e-6, example="0.2")
