"""Lion: steps of the same size in every weight, in the direction of the sign of a momentum.

With w the weights, g their gradient, η the rate and λ the weight decay:

    w ← w − η (sign(β₁ m + (1 − β₁) g) + λ w)
    m ← β₂ m + (1 − β₂) g

Source: Chen et al., arXiv 2302.06675, algorithm 2.
"""

from __future__ import annotations

import mindspore as ms
from mindspore import Tensor, nn, ops

from msaccel.kernels import current_backend, fused_step
from msaccel.schema import LionSettings
from msaccel.training.optimizers.weights import Weights


class Lion(nn.Optimizer):
    """Inputs: gradients, float32, in the order of the weights; if `fused`, whether to step (1 or 0)."""

    def __init__(self, weights: Weights, settings: LionSettings) -> None:
        super().__init__(settings.lr, list(weights.parameters))
        self.beta1, self.beta2 = settings.beta1, settings.beta2
        self.rest1, self.rest2 = 1 - self.beta1, 1 - self.beta2  # in a graph the difference is rounded to float32 first
        self.decays = weights.decays(settings.weight_decay)
        self.moments = self.parameters.clone(prefix="moment", init="zeros")
        self.one = Tensor(1.0, ms.float32)
        self.fused = current_backend().library is not None
        if self.fused:
            self.step = fused_step("lion", len(self.parameters), states=1)
            self.numbers = Tensor([self.beta1, self.rest1, self.beta2, self.rest2, *self.decays], ms.float32)

    def construct(self, gradients: tuple[Tensor, ...], should_step: Tensor | None = None) -> Tensor:
        if self.fused:
            should_step = self.one if should_step is None else should_step
            return self.step(should_step, self.learning_rate, self.numbers, *gradients, *self.parameters, *self.moments)
        for i in range(len(self.parameters)):
            weight, moment, gradient = self.parameters[i], self.moments[i], gradients[i]
            step = ops.sign(self.beta1 * moment + self.rest1 * gradient) + self.decays[i] * weight
            new_moment = self.beta2 * moment + self.rest2 * gradient
            ops.assign(weight, weight - self.learning_rate * step)
            ops.assign(moment, new_moment)
        return self.one
