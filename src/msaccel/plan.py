"""The arithmetic of one job: how many samples make an update, how many updates make the job."""

from __future__ import annotations

import math
from dataclasses import dataclass

from msaccel.accel.accum import rate_factor
from msaccel.checks import global_batch, steps
from msaccel.data import Order, updates_per_epoch
from msaccel.schedules import rate
from msaccel.settings import Config


@dataclass(frozen=True)
class Plan:
    """What is known about a job before its first update.

    Attributes:
        config: the job's settings.
        samples: size of the training set.
    """

    config: Config
    samples: int

    @property
    def updates_per_epoch(self) -> int:
        return updates_per_epoch(self.samples, global_batch(self.config))

    @property
    def total_updates(self) -> int:
        """The whole job's updates: epochs or `max_updates`, whichever ends first."""
        train = self.config.train
        by_epochs = train.epochs * self.updates_per_epoch if train.epochs else math.inf
        return int(min(by_epochs, train.max_updates or math.inf))

    @property
    def epochs(self) -> int:
        """Epochs that are begun."""
        return -(-self.total_updates // self.updates_per_epoch)

    @property
    def log_every(self) -> int:
        """Updates between log points."""
        every = self.config.tracking.every
        return math.ceil(self.total_updates / 500) if every == "auto" else int(every)

    @property
    def peak_rate(self) -> float:
        accum = self.config.accel.get("accum")
        return self.config.optimizer.lr * (rate_factor(accum) if accum else 1.0)

    def rate(self, update: int) -> float:
        """The learning rate of an update, counted from 0."""
        return rate(self.config.schedule, self.peak_rate, update, self.updates_per_epoch, self.total_updates)

    def order(self) -> Order:
        config = self.config
        return Order(self.samples, config.seed, config.train.batch_size, steps(config), config.device.ranks)

    def __str__(self) -> str:
        train = self.config.train
        short = self.samples % global_batch(self.config)
        return (
            f"micro-batch {train.batch_size} × accumulation {steps(self.config)} × ranks {self.config.device.ranks} "
            f"= global batch {global_batch(self.config)}; "
            f"{self.samples:,} samples / {global_batch(self.config)} = {self.updates_per_epoch:,} updates per epoch"
            f"{f' (the last one of {short})' if short else ''}; {self.total_updates:,} updates in all"
        )
