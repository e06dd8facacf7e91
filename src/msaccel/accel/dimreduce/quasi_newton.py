"""The update of stage 2: a quasi-Newton step inside the subspace, a plain momentum step outside it.

With P the k × M matrix of orthonormal rows, w the weights, L the mean loss of the window, g its gradient, and B an
estimate of the inverse Hessian in the subspace (P-BFGS of DLDR, arXiv 2103.11154):

1. g_k = P g and y = g_k − g_k,last; if y·s > 1e-10 ‖y‖ ‖s‖, s the last step: ρ = 1 / (y·s), V = I − ρ y sᵀ,
   B ← Vᵀ B V + ρ s sᵀ. Else the pair is skipped and counted.
2. d = −B g_k; s = r^m d for the first m in 0 … max_trials − 1 with L(w + Pᵀ s) < L(w) + σ g_k·s.
3. h ← γ h + c (g − Pᵀ P g), c the factor of clipping; w ← w + Pᵀ s − α h − weight_decay · w.

Where the sources are silent:

* No pair is formed without a step before: in the first update, and in the one after a reset.
* A failed search leaves B, g_k,last and s as they were before the update. The subspace part of w has not moved since
  g_k,last, so the next pair (its g_k − g_k,last, s) is a true one, whatever −α h did meanwhile.
* The update after 3 failures in a row starts with B = I, no pair and d = −g_k / ‖g_k‖; the count of failures starts
  anew. If that search fails too, the next one tries d = −g_k, so scales alternate instead of repeating.
* A direction that does not descend (g_k = 0, or B no longer positive definite) is a failed search without trials.
* A trial whose loss is not finite fails the condition. The finite check makes sure that g and L(w) are finite.
* Clipping scales what enters h, as it would for any momentum: a factor on α h would keep an exploded gradient in h.
* B is symmetrised after each change, since rounding of Vᵀ B V is not symmetric.
* With weight decay the pair's s is still the searched step alone, though decay moves w inside the subspace too.

What to expect: B starts at I, so Hessians with eigenvalues between 0.01 and 1e5 suit it; flatter ones take more than
five updates a component to be learned, steeper ones need steps below the smallest trial step. y also includes what −α h
changed: where the residual moves far, pairs are skipped. Each trial costs a forward pass of the window.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from msaccel.accel.dimreduce.bfgs import Constants, Float64s, Losses, search, updated
from msaccel.accel.dimreduce.projection import Projection, ShardedProjection, square
from msaccel.errors import CheckpointError

PATIENCE = 3  # failed searches in a row before B is reset


@dataclass(frozen=True)
class Measured:
    """What one update measured.

    Attributes:
        trials: forward passes of the line search.
        share: ‖P g‖² / ‖g‖², the share of the gradient inside the subspace; 0 for g = 0.
    """

    trials: int
    share: float


@dataclass
class Counters:
    """Totals over all updates, but for `failures`, which counts failed searches since the last good one or reset."""

    failures: int = 0
    trials: int = 0
    failed: int = 0
    skipped: int = 0
    resets: int = 0


class SubspaceStep:
    """Updates of stage 2, and their state.

    Args:
        projection: P.
        components: k.
        size: M.
        constants: of the update.
    """

    def __init__(
        self,
        projection: Projection | ShardedProjection,
        components: int,
        size: int,
        constants: Constants | None = None,
    ) -> None:
        self.projection = projection
        self.constants = constants or Constants()
        self.inverse: Float64s = np.eye(components)
        self.gradient: Float64s = np.zeros(components)
        self.step: Float64s = np.zeros(components)  # all zero: there is no pair to form
        self.residual: NDArray[np.float32] = np.zeros(size, np.float32)
        self.counters = Counters()

    def __call__(
        self,
        gradient: NDArray[np.float32],
        loss: float,
        loss_at: Losses,
        weights: NDArray[np.float32] | None = None,
        clip: float = 1.0,
    ) -> tuple[NDArray[np.float32], Measured]:
        """One update.

        Args:
            gradient: g (M,), the mean gradient of L: unscaled, unclipped, without weight decay, finite.
            loss: L(w) of the window.
            loss_at: L(w + Pᵀ c) of the same window for coordinates c (k,).
            weights: w (M,); needed with weight decay only.
            clip: the factor of clipping for the residual, 1 for none.

        Returns:
            What to add to w (M,), and what was measured.
        """
        projected = self.projection.project(gradient)
        norm_squared, inside = square(gradient), float(projected @ projected)
        reset = self.counters.failures == PATIENCE
        if reset:
            self.inverse, self.step = np.eye(len(projected)), np.zeros(len(projected))
            self.counters.failures = 0
            self.counters.resets += 1
        inverse, skipped = self.inverse, False
        if self.step.any():
            learned = updated(self.inverse, projected - self.gradient, self.step)
            inverse, skipped = (self.inverse, True) if learned is None else (learned, False)
        direction = -inverse @ projected
        if reset and inside > 0:
            direction /= np.sqrt(inside)
        step, trials = search(loss, loss_at, direction, float(projected @ direction), self.constants)
        self.count(trials, step is None, skipped)
        if step is not None:
            self.inverse, self.gradient, self.step = inverse, projected, step
        measured = Measured(trials, inside / norm_squared if norm_squared > 0 else 0.0)
        return self.increment(gradient, projected, step, weights, clip), measured

    def count(self, trials: int, failed: bool, skipped: bool) -> None:
        self.counters.failures = self.counters.failures + 1 if failed else 0
        self.counters.trials += trials
        self.counters.failed += failed
        self.counters.skipped += skipped

    def increment(
        self,
        gradient: NDArray[np.float32],
        projected: Float64s,
        step: Float64s | None,
        weights: NDArray[np.float32] | None,
        clip: float,
    ) -> NDArray[np.float32]:
        """Updates h, and adds up the parts of the update (M,)."""
        constants = self.constants
        outside = gradient - self.projection.lift(projected)
        outside *= np.float32(clip)
        self.residual *= np.float32(constants.gamma)
        self.residual += outside
        result = np.float32(-constants.alpha) * self.residual
        if step is not None:
            result += self.projection.lift(step)
        if constants.weight_decay:
            if weights is None:
                raise ValueError("weight decay needs the weights")
            result -= np.float32(constants.weight_decay) * weights
        return result

    def state_dict(self) -> dict[str, NDArray[np.generic]]:
        """All that the next update depends on, by name: no copies, so save the arrays before the next update."""
        return {
            "inverse": self.inverse,
            "gradient": self.gradient,
            "step": self.step,
            "residual": self.residual,
            "counters": np.array(list(vars(self.counters).values()), np.int64),
        }

    def load_state_dict(self, state: dict[str, NDArray[np.generic]]) -> None:
        """Restores what `state_dict` returned.

        Raises:
            CheckpointError: it belongs to another network or number of components.
        """
        for name, mine in self.state_dict().items():
            found = state.get(name)
            if found is None or found.shape != mine.shape or found.dtype != mine.dtype:
                raise CheckpointError(
                    f"The checkpoint's state of stage 2 is of another job: {name} should have the shape {mine.shape} "
                    "and has not; resume with the network and accel.dimreduce.components it was written with."
                )
        self.inverse, self.gradient, self.step = (
            state[name].astype(np.float64) for name in ("inverse", "gradient", "step")
        )
        self.residual[:] = state["residual"]
        self.counters = Counters(*state["counters"].tolist())
