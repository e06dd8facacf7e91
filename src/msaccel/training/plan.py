"""The arithmetic of one job: how many samples make an update, how many updates make the job."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property

from msaccel.accel import chosen, steps
from msaccel.data.sampler import Sampler
from msaccel.schema import Config
from msaccel.step.stage_budget import StageBudget
from msaccel.training.schedules import rate


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
        """The stages of the job, in order: one, or those of a method that has several."""
        config, train = self.config, self.config.train
        sampler = self.sampler(steps(config))
        for _, method, settings in chosen(config):
            if budgets := method.budgets(settings, config, sampler, self.sampler):
                return budgets
        by_epochs = train.epochs * sampler.updates_per_epoch if train.epochs else math.inf
        return [StageBudget(sampler, int(min(by_epochs, train.max_updates or math.inf)))]

    @cached_property
    def total_updates(self) -> int:
        """The whole job's updates: epochs or `max_updates`, whichever ends first."""
        return sum(budget.updates for budget in self.budgets)

    @property
    def total_samples(self) -> int:
        """The samples of all updates, each counted as often as it is used."""
        total = 0
        for budget in self.budgets:
            epochs, rest = divmod(budget.updates, budget.sampler.updates_per_epoch)
            total += epochs * self.samples + rest * budget.sampler.global_batch
        return total

    @property
    def epochs(self) -> int:
        return sum(budget.epochs for budget in self.budgets)

    @cached_property
    def log_every(self) -> int:
        """Updates between log points."""
        every = self.config.tracking.every
        return math.ceil(self.total_updates / 500) if every == "auto" else int(every)

    def evaluations(self, epoch: int, updates: int) -> set[int]:
        """The updates of an epoch, counted from 1, after which the network is evaluated.

        Args:
            epoch: counted from 0.
            updates: of the epoch.
        """
        every = Fraction(str(self.config.train.eval_every))
        multiples = range(epoch // every + 1, (epoch + 1) // every + 1)  # those within the epoch or at its end
        return {math.ceil((number * every - epoch) * updates) for number in multiples}

    @property
    def peak_rate(self) -> float:
        factors = [method.rate_factor(settings) for _, method, settings in chosen(self.config)]
        return self.config.optimizer.lr * math.prod(factors, start=1.0)

    def rate(self, budget: StageBudget, update: int) -> float:
        """The learning rate of an update, counted from 0 in its stage.

        Stages without a rate of their own share the schedule, whatever the size of their updates: places in the job are
        counted in updates of the size that this stage has.
        """
        if budget.rate is not None:
            return budget.rate
        sharing, per_epoch = [each for each in self.budgets if each.rate is None], budget.sampler.updates_per_epoch
        place = sharing.index(budget)
        before, after = (
            per_epoch * sum(each.epochs for each in part) for part in (sharing[:place], sharing[place + 1 :])
        )
        total = before + budget.updates + after
        return rate(self.config.schedule, self.peak_rate, before + update, per_epoch, total)

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
