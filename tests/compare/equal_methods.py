"""Simulated studies of two equal methods, from whose results nothing may follow."""

from __future__ import annotations

import math

import numpy as np

from msaccel.compare.baselines import BaselinePair
from msaccel.compare.groups import ComparisonSet
from msaccel.compare.method_runs import MethodRuns
from msaccel.compare.runs import Record
from msaccel.compare.statistics import Estimate
from msaccel.compare.tuning import Choice, tune
from msaccel.compare.verdicts import estimates


def tuned(
    draw: np.random.Generator, n: int, curve: np.ndarray, noise: str, of_seed: float = 0.0
) -> dict[str, Estimate]:
    """The estimates of one study of two equal methods, each tuned over the rates of a curve (in standard deviations).

    Args:
        of_seed: share of the variance that runs of a seed have in common; they are compared in pairs if it is not 0.
    """
    pair, choices = tuned_pair(draw, n, curve, noise, of_seed)
    return estimates(pair, bool(of_seed), choices)


def tuned_pair(
    draw: np.random.Generator, n: int, curve: np.ndarray, noise: str, of_seed: float = 0.0, of_rate: float = 0.0
) -> tuple[BaselinePair, dict[MethodRuns, Choice]]:
    """The runs of such a study, at the rates that were chosen, and the choices.

    Args:
        of_rate: share of the variance that runs of the same seed and rate have in common.
    """
    runs: list[MethodRuns] = []
    common = draw.normal(size=n)
    of_rates = draw.normal(size=(len(curve), n)) if of_rate else np.zeros((len(curve), n))
    for accel in ("none", "clip"):
        for rate, mean in enumerate(curve):
            shared = draw.normal(size=n) if noise == "normal" else 1 - draw.exponential(size=n)
            shared = math.sqrt(of_seed) * common + math.sqrt(1 - of_seed - of_rate) * shared
            shared += math.sqrt(of_rate) * of_rates[rate]
            final, validation = (
                0.98 + 0.001 * (mean + shared),
                0.98 + 0.001 * (mean + 0.7 * (shared + draw.normal(size=n))),
            )
            if noise == "diverging":
                lost = draw.random(n) < 0.1
                final[lost], validation[lost] = 0.1, 0.1
            records = [
                Record("", "", "", "FINISHED", 0, 0, {"seed": str(s)}, {}, {"final/accuracy": f, "val/accuracy": v})
                for s, (f, v) in enumerate(zip(final, validation, strict=True))
            ]
            runs.append(MethodRuns({"accel": accel, "optimizer.lr": str(rate)}, records, least=0.9))
    found, _, choices = tune(ComparisonSet({}, runs, []), "optimizer.lr")
    method, baseline = found.methods
    return BaselinePair(method, baseline, "", ()), choices
