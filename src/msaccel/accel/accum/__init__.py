"""Gradient accumulation: one update from the gradients of several micro-batches.

With k micro-batches of n_i samples and mean gradients g_i, an update uses

* `mean`: (sum n_i g_i) / (sum n_i), the gradient of the big batch,
* `sum`:  (sum n_i g_i) / b, with b the nominal size of a micro-batch: tutorial 000 adds k mean gradients undivided.

Place: `accumulate`; `step/graphs.py` adds the gradients up. What follows (reduction, finite check, clipping,
optimizer) happens once per update. A window may be short at the end of an epoch, is never carried over, and is weighted
by the samples it has.

With `grow_at` windows become `growth` times as large at each of these shares of the job's epochs: the noise of the
gradient falls as it does where the rate decays, with fewer updates. An epoch has the window of the share that is over
when it begins. Optimizer state, loss scale and schedule go on through all windows.

What not to expect: it buys memory, not time, on one device. Batch norm sees micro-batches, so its statistics differ
from the big batch's. Sources: MindSpore tutorials "Gradient Accumulation" (000 and 001 in `experiments/`); for growing
windows Smith et al., arXiv 1711.00489.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

from msaccel.accel import Method, filling
from msaccel.schema import Config, setting

if TYPE_CHECKING:
    from msaccel.data.sampler import Sampler
    from msaccel.step.stage_budget import StageBudget


@dataclass
class AccumSettings:
    steps: int = setting(at_least=2, example="4, or accel=none to accumulate nothing")
    reduction: str = setting(choices=("mean", "sum"))
    lr_scale: str = setting(choices=("none", "sqrt", "linear"))
    grow_at: list[float] | None = setting(default=None, above=0, below=1, example="[0.3,0.6,0.8]")
    growth: int = setting(default=5, at_least=2, example="5")


class AccumMethod(Method):
    slot = "accumulate"
    settings = AccumSettings
    steps_key = "accel.accum.steps"  # and so two baselines: the same micro-batch, and the same global batch

    def refusals(self, settings: AccumSettings, config: Config) -> Iterator[str]:
        if settings.reduction == "sum" and settings.lr_scale != "none":
            yield (
                f"accel.accum.lr_scale={settings.lr_scale} with accel.accum.reduction=sum would count the "
                f"{settings.steps} steps twice; write accel.accum.lr_scale=none or accel.accum.reduction=mean."
            )

        if settings.grow_at is not None:
            yield from _growing(settings.grow_at, config)

    def without_effect(self, settings: AccumSettings, config: Config) -> dict[str, str]:
        return {"accel.accum.growth": "accel.accum.grow_at=null"} if settings.grow_at is None else {}

    def steps(self, settings: AccumSettings) -> int:
        """Of the largest window."""
        return settings.steps * settings.growth ** len(settings.grow_at or ())

    def budgets(
        self, settings: AccumSettings, config: Config, sampler: Sampler, with_steps: Callable[[int], Sampler]
    ) -> list[StageBudget] | None:
        from msaccel.step.stage_budget import StageBudget

        if settings.grow_at is None:
            return None
        assert config.train.epochs is not None
        edges = [0, *first_epochs(settings.grow_at, config.train.epochs), config.train.epochs]
        samplers = [with_steps(settings.steps * settings.growth**number) for number in range(len(edges) - 1)]
        return [
            StageBudget(each, (end - first) * each.updates_per_epoch)
            for each, (first, end) in zip(samplers, pairwise(edges), strict=True)
        ]

    def fixed_budget(self, settings: AccumSettings) -> str:
        return "" if settings.grow_at is None else "would have made windows grow after other epochs"

    def reduction(self, settings: AccumSettings) -> str:
        return settings.reduction

    def rate_factor(self, settings: AccumSettings) -> float:
        """The factor that `lr_scale` gives; tutorial 001 advises a larger rate for the larger batch.

        It counts the first window alone: windows that grow take the place of a rate that falls.
        """
        factors = {"none": 1.0, "sqrt": math.sqrt(settings.steps), "linear": float(settings.steps)}
        return factors[settings.lr_scale]


def first_epochs(shares: Sequence[float], epochs: int) -> list[int]:
    """For each share of a job's epochs the first epoch, counted from 0, that begins when it is over."""
    return [math.ceil(round(share * epochs, 9)) for share in shares]


def _growing(shares: Sequence[float], config: Config) -> Iterator[str]:
    """A sentence if windows cannot grow at these shares of the job."""
    train, written = config.train, f"accel.accum.grow_at=[{','.join(f'{share:g}' for share in shares)}]"
    if applying := filling("apply", config.accel):
        yield f"accel={applying} with {written}: each divides the job into stages of its own; leave out one of them."
    if train.max_updates is not None:
        yield (
            f"train.max_updates={train.max_updates} with {written} would count updates of several sizes; "
            "write train.epochs=10 train.max_updates=null."
        )
    elif list(shares) != sorted(set(shares)) or not shares:
        yield f"{written} has to name shares of the job that rise, such as accel.accum.grow_at=[0.3,0.6,0.8]."
    elif train.epochs:
        edges = [0, *first_epochs(shares, train.epochs), train.epochs]
        if len(set(edges)) < len(edges):
            gap = min(after - before for before, after in pairwise([0.0, *shares, 1.0]))
            yield (
                f"{written} leaves a window without an epoch of train.epochs={train.epochs}; "
                f"write train.epochs={math.ceil(round(1 / gap, 6))} or other shares."
            )


METHOD = AccumMethod()
