"""How long a training stage is; without MindSpore, so that a job can be planned without it."""

from __future__ import annotations

from dataclasses import dataclass

from msaccel.data.sampler import Sampler


@dataclass(frozen=True)
class StageBudget:
    """How long a stage is: epochs of a job with updates of one size.

    Attributes:
        sampler: which samples an update uses.
        updates: their number in the whole stage.
        rate: a constant that `lr` has; None: the schedule gives it, which runs over all such stages together.
    """

    sampler: Sampler
    updates: int
    rate: float | None = None

    @property
    def epochs(self) -> int:
        """The number of epochs, counting a last one that is only begun."""
        return -(-self.updates // self.sampler.updates_per_epoch)
