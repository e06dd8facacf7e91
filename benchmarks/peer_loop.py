"""The loop in which another framework trains: the samples and order of a job of msaccel's, and nothing logged."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from cases import Case
from measure import milliseconds

from msaccel import schema
from msaccel.data.dataset import DatasetSplits
from msaccel.devices.machine import peak_mb
from msaccel.training.plan import Plan


def train(
    case: Case,
    config: schema.Config,
    data: DatasetSplits,
    step: Callable[..., Any],
    make_batch: Callable[[DatasetSplits, np.ndarray], Sequence[Any]],
    settle: Callable[[Any], Any],
) -> dict[str, float]:
    """Makes the job's updates and measures those after the case's warm-up.

    Args:
        step: one update; returns its loss.
        make_batch: the arguments of `step` from indices of the training set.
        settle: waits until a loss is computed.
    """
    (budget,) = Plan(config, len(data.train)).budgets
    every = (indices for epoch in range(budget.epochs) for ((indices,),) in budget.sampler.epoch(epoch))
    first_s, samples, begun = 0.0, 0, time.perf_counter()
    for update, indices in enumerate(itertools.islice(every, budget.updates)):
        loss = step(*make_batch(data, indices))
        samples += len(indices)
        if update == 0:
            first_s = time.perf_counter() - begun
        if update + 1 == case.warm_up:
            samples, begun = 0, time.perf_counter()
    settle(loss)
    seconds, peak = time.perf_counter() - begun, peak_mb()
    batch = make_batch(data, np.arange(config.train.batch_size))
    return {
        "samples_per_sec": samples / seconds,
        "bare_ms": milliseconds(lambda: step(*batch), case.bare, settle),
        "first_s": first_s,
        "peak_mb": peak,
    }
