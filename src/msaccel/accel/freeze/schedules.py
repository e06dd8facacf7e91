"""Which update freezes how many layers."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from msaccel.data.counter_rng import uniform
from msaccel.errors import ConfigError, counted

GROUPS = 10  # the number into which `mindspore.boost` divides a network, by default
# Group g, the number of frozen ones, is drawn with a probability proportional to 10 − g.
_ODDS = np.cumsum(np.arange(GROUPS - 1, 0, -1)) / math.comb(GROUPS, 2)
_STREAM = np.array([2**63 - 1])  # of random numbers, apart from those for samples
_DIGITS = 9  # to which products of settings are rounded: 1 − 0.7 is 0.30000000000000004


@dataclass(frozen=True)
class Ramp:
    """After the fraction `start` of the job the frozen share grows in equal steps of equal length to `share`.

    Attributes:
        layers: of the network.
    """

    start: float
    share: float
    steps: int
    layers: int

    def __call__(self, done: int, of: int) -> int:
        """The number of layers that the next update freezes when `done` of a job's `of` have been made.

        Raises:
            ConfigError: not even the last update freezes any.
        """
        if not self._frozen(of - 1, of):
            raise ConfigError(
                f"accel.freeze.start={self.start:g} with accel.freeze.steps={self.steps} freezes nothing in a job of "
                f"{counted(of, 'update')}; write accel.freeze.start=0 accel.freeze.steps=1 or a longer job."
            )
        return self._frozen(done, of)

    def _frozen(self, done: int, of: int) -> int:
        begun = round(self.start * of, _DIGITS)
        if done < begun:
            return 0
        step = 1 + math.floor(round((done - begun) * self.steps / (of - begun), _DIGITS))
        return math.floor(round(self.share * self.layers * step / self.steps, _DIGITS))


@dataclass(frozen=True)
class Draws:
    """Every update freezes as many layers as `mindspore.boost` would by default, drawn from the job's seed.

    Attributes:
        whole: share of the updates that freeze nothing; the others are spread evenly.
        seed: the job's.
        layers: of the network.
    """

    whole: float
    seed: int
    layers: int

    def __call__(self, done: int, of: int) -> int:
        if self._freezing(done) == self._freezing(done - 1):
            return 0
        drawn = uniform(self.seed, done, _STREAM, 1)[0, 0]
        frozen = 1 + int(np.searchsorted(_ODDS, drawn, side="right"))
        return frozen * self.layers // GROUPS

    def _freezing(self, update: int) -> int:
        """How many updates freeze layers up to this one; updates are counted from 0, and update 0 never does."""
        return math.ceil(round((1 - self.whole) * max(0, update), _DIGITS))
