"""The two parts of a quasi-Newton step in k dimensions: learning the curvature, and finding how far to go."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

CURVATURE = 1e-10  # smallest cosine between y and s that makes a pair

Float64s = NDArray[np.float64]
Losses = Callable[[Float64s], float]


@dataclass(frozen=True)
class Constants:
    """Constants of stage 2, with the tutorial's defaults (`max_trials` is DLDR's).

    Attributes:
        rho: r, the factor by which a trial step shrinks, in (0, 1).
        gamma: γ, the momentum of the residual.
        alpha: α, the rate of the residual.
        sigma: σ, the share of the expected decrease that a step must reach, in (0, 1/2) for full Newton steps.
        max_trials: how many steps are tried.
        weight_decay: the share of the weights that each update subtracts.
    """

    rho: float = 0.55
    gamma: float = 0.9
    alpha: float = 0.001
    sigma: float = 0.4
    max_trials: int = 20
    weight_decay: float = 0.0


def updated(inverse: Float64s, change: Float64s, step: Float64s) -> Float64s | None:
    """The estimate of the inverse Hessian after one pair: BFGS, Nocedal and Wright, *Numerical Optimization*, eq. 6.17.

    Args:
        inverse: B (k, k), symmetric and positive definite.
        change: y (k,), the change of the gradient along the step.
        step: s (k,).

    Returns:
        The new B, symmetric and positive definite; None if y·s says that the loss does not curve upwards along s.
    """
    curvature = change @ step
    if not curvature > CURVATURE * np.linalg.norm(change) * np.linalg.norm(step):
        return None
    along = np.eye(len(step)) - np.outer(change, step) / curvature
    result = along.T @ inverse @ along + np.outer(step, step) / curvature
    return (result + result.T) / 2


def search(
    loss: float, loss_at: Losses, direction: Float64s, slope: float, constants: Constants
) -> tuple[Float64s | None, int]:
    """Backtracks from a direction (k,) to the first step that decreases the loss enough.

    Args:
        loss: at the start.
        loss_at: the loss after a step (k,).
        direction: the first step to try.
        slope: g_k·d, the decrease of the loss that its first order predicts; negative.
        constants: r, σ and the number of trials.

    Returns:
        The step, None if there is none, and the number of losses evaluated.
    """
    if not slope < 0:
        return None, 0
    for trial in range(constants.max_trials):
        shrink = constants.rho**trial
        reached = loss_at(shrink * direction)
        if np.isfinite(reached) and reached < loss + constants.sigma * shrink * slope:
            return shrink * direction, trial + 1
    return None, constants.max_trials
