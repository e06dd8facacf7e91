"""The arithmetic of one job: how many samples make an update, how many updates make the job."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

from msaccel.accel import dimreduce
from msaccel.accel.accum import rate_factor
from msaccel.config.derived import steps
from msaccel.data import Sampler
from msaccel.schema import Config
from msaccel.training.schedules import rate


@dataclass(frozen=True)
class StageBudget:
    """Epochs of a job with updates of one size.

    Attributes:
        sampler: which samples an update uses.
        updates: of all its epochs.
        rate: what `lr` is, where the schedule does not say.
    """

    sampler: Sampler
    updates: int
    rate: float | None = None

    @property
    def epochs(self) -> int:
        """Epochs that are begun."""
        return -(-self.updates // self.sampler.updates_per_epoch)


@dataclass(frozen=True)
class Plan:
    """What is known about a job before its first update.

    Attributes:
        config: the job's settings.
        samples: size of the training set.
    """

    config: Config
    samples: int

    @cached_property
    def budgets(self) -> list[StageBudget]:
        """The stages of the job, in order: one, or two with dimension reduction."""
        train, subspace = self.config.train, self.config.accel.get("dimreduce")
        first = self.sampler(steps(self.config))
        if subspace is None:
            by_epochs = train.epochs * first.updates_per_epoch if train.epochs else math.inf
            return [StageBudget(first, int(min(by_epochs, train.max_updates or math.inf)))]
        second = self.sampler(dimreduce.steps(subspace, self.config))
        last = StageBudget(second, subspace.epochs * second.updates_per_epoch, subspace.alpha)
        if subspace.second_stage_only:
            return [last]
        return [StageBudget(first, (train.epochs - subspace.epochs) * first.updates_per_epoch), last]

    @cached_property
    def total_updates(self) -> int:
        """The whole job's updates: epochs or `max_updates`, whichever ends first."""
        return sum(budget.updates for budget in self.budgets)

    @property
    def epochs(self) -> int:
        return sum(budget.epochs for budget in self.budgets)

    @cached_property
    def log_every(self) -> int:
        """Updates between log points."""
        every = self.config.tracking.every
        return math.ceil(self.total_updates / 500) if every == "auto" else int(every)

    @property
    def peak_rate(self) -> float:
        accum = self.config.accel.get("accum")
        return self.config.optimizer.lr * (rate_factor(accum) if accum else 1.0)

    def rate(self, budget: StageBudget, update: int) -> float:
        """The learning rate of an update, counted from 0 in its leg."""
        if budget.rate is not None:
            return budget.rate
        return rate(self.config.schedule, self.peak_rate, update, budget.sampler.updates_per_epoch, budget.updates)

    def sampler(self, steps: int) -> Sampler:
        config = self.config
        return Sampler(self.samples, config.seed, config.train.batch_size, steps, config.device.ranks)

    def __str__(self) -> str:
        return (
            "; then ".join(self.arithmetic(budget) for budget in self.budgets)
            + f"; {self.total_updates:,} updates in all"
        )

    def arithmetic(self, budget: StageBudget) -> str:
        sampler = budget.sampler
        short = self.samples % sampler.global_batch
        return (
            f"micro-batch {sampler.micro_batch} × accumulation {sampler.steps} × ranks {sampler.ranks} "
            f"= global batch {sampler.global_batch}; {self.samples:,} samples / {sampler.global_batch} "
            f"= {sampler.updates_per_epoch:,} updates per epoch{f' (the last one of {short})' if short else ''}"
        )
