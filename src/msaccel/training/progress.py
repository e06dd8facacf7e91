"""How far a job has come: its counts, its clocks, and the time left. A resumed job continues from its counts."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Any

from msaccel.errors import CheckpointError
from msaccel.training.plan import Plan

_CLOCKS = ("clock", "compiling", "waiting")


class Clock:
    """Seconds of wall time, counted only inside `running`."""

    def __init__(self, before: float = 0.0) -> None:
        self._before = before
        self._since: float | None = None

    @property
    def seconds(self) -> float:
        """Seconds counted so far."""
        return self._before + (time.perf_counter() - self._since if self._since is not None else 0.0)

    @contextmanager
    def running(self) -> Iterator[None]:
        self._since = time.perf_counter()
        try:
            yield
        finally:
            self._before, self._since = self.seconds, None

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Inside `running`: what happens here does not count."""
        self._before, self._since = self.seconds, None
        try:
            yield
        finally:
            self._since = time.perf_counter()


@dataclass
class Counts:
    """One job's counts.

    Attributes:
        stage, epoch: the current ones, counted from 0.
        updates, samples: of the whole job so far.
        updates_before: the updates of earlier stages.
        refused: updates that were not applied.
        exchanged: bytes that a rank has handed to the others; NaN in a job that an earlier version began.
        rate: of the last update.
        best, best_test: accuracies of the best evaluation: the one it was chosen by, and on the test set (0 to 1).
        reached_target: whether an evaluation reached `train.target_accuracy`.
        peak_mb: the largest resident memory at an evaluation, of any rank, in MB (10⁶ bytes).
        clock: training time; `compiling` runs while it is paused, `waiting` is the part spent waiting for samples.
    """

    stage: int = 0
    epoch: int = 0
    updates: int = 0
    updates_before: int = 0
    samples: int = 0
    refused: int = 0
    exchanged: float = 0.0
    rate: float = math.nan
    best: float = -math.inf
    best_test: float = math.nan
    reached_target: bool = False
    peak_mb: float = 0.0
    clock: Clock = field(default_factory=Clock)
    compiling: Clock = field(default_factory=Clock)
    waiting: Clock = field(default_factory=Clock)

    @property
    def speed(self) -> float:
        """Samples per second of training."""
        return self.samples / self.clock.seconds

    def state_dict(self) -> dict[str, dict[str, Any]]:
        """All of it, as JSON can hold it."""
        counters = {name: value for name, value in vars(self).items() if name not in _CLOCKS}
        return {"counters": counters, "seconds": {name: getattr(self, name).seconds for name in _CLOCKS}}

    @classmethod
    def of(cls, facts: dict[str, Any], most_updates: int) -> Counts:
        """What `state_dict` returned, read back.

        Args:
            most_updates: of the resumed job.

        Raises:
            CheckpointError: it is something else, or beyond the end of the job.
        """
        try:
            kinds = {name: type(value) for name, value in vars(cls()).items() if name not in _CLOCKS}
            counters = {"exchanged": math.nan, "peak_mb": 0.0, **facts["counters"]}
            values: dict[str, Any] = {name: kind(counters[name]) for name, kind in kinds.items()}
            values |= {name: Clock(float(facts["seconds"][name])) for name in _CLOCKS}
            found = cls(**values)
            if min(found.stage, found.epoch, found.updates, found.updates_before, found.samples, found.refused) < 0:
                raise ValueError("a count below 0")
        except (KeyError, TypeError, ValueError, OverflowError) as error:
            raise CheckpointError(f"the resume checkpoint is not understood ({error!r}); start a new job.") from error
        if found.updates > most_updates:
            raise CheckpointError(
                f"the job ends after {most_updates} updates and has made {found.updates}; "
                "raise train.epochs or train.max_updates."
            )
        return found


class TimeLeft:
    """Seconds to the end of a job, from what this process has measured of its current stage and of evaluations.

    Args:
        shares: for each epoch the work for a sample, as a share of that at full size; None: it is 1.
    """

    def __init__(self, plan: Plan, shares: Sequence[float] | None = None) -> None:
        self._plan, self._shares = plan, shares or [1.0] * plan.epochs
        self._before = [0.0, *accumulate(share * plan.samples for share in self._shares)]  # each epoch
        self._samples, self._seconds = 0, 0.0  # when this process began the stage
        self._evaluation = math.inf  # the shortest; the first one compiles

    def begin_stage(self, counts: Counts) -> None:
        """Measures speed anew: samples of another stage may take another time."""
        self._samples, self._seconds = counts.samples, counts.clock.seconds

    @contextmanager
    def evaluating(self) -> Iterator[None]:
        started = time.perf_counter()
        yield
        self._evaluation = min(self._evaluation, time.perf_counter() - started)

    def seconds(self, counts: Counts) -> float | None:
        """At the pace so far, without compiling; None before the stage's first update.

        Evaluations count once one has been measured; the last of them scores the checkpoint on disk.
        """
        done, seconds = self._work(counts.samples), counts.clock.seconds - self._seconds
        if counts.samples == self._samples:
            return None
        every, so_far = self._plan.config.train.eval_every, counts.samples / self._plan.samples
        evaluations = math.ceil(self._plan.total_samples / self._plan.samples / every) - int(so_far / every) + 1
        rest = evaluations * self._evaluation if math.isfinite(self._evaluation) else 0.0
        left = self._work(self._plan.total_samples) - done
        return left * seconds / (done - self._work(self._samples)) + rest

    def _work(self, samples: int) -> float:
        """The work for the job's first samples, in samples of full size."""
        epoch, rest = divmod(samples, self._plan.samples)
        return self._before[epoch] + (rest * self._shares[epoch] if rest else 0.0)
