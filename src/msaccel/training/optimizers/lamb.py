"""LAMB: Adam whose step has, layer by layer, the norm of the weights.

With w a tensor of weights, g its gradient in update t, η the rate and λ the weight decay:

    m ← β₁ m + (1 − β₁) g,  v ← β₂ v + (1 − β₂) g²
    u = m / (1 − β₁ᵗ) / (√(v / (1 − β₂ᵗ)) + ε) + λ w
    w ← w − η (‖w‖ / ‖u‖) u

This is algorithm 2 of the paper's version 5, with its bias correction and φ(z) = z. Biases and the parameters of
normalisation layers have no ratio and no decay, as in the authors' code for BERT. Where w or u is all zero, the ratio
is 1.
Source: You et al., arXiv 1904.00962v5.
"""

from __future__ import annotations

import mindspore as ms
from mindspore import Parameter, Tensor, nn, ops

from msaccel.kernels import current_backend, fused_step
from msaccel.schema import AdamSettings
from msaccel.training.optimizers.trust_ratio import norm, trust_ratio
from msaccel.training.optimizers.weights import Weights


class Lamb(nn.Optimizer):
    """Inputs: gradients, float32, in the order of the weights; if `fused`, whether to step (1 or 0)."""

    def __init__(self, weights: Weights, settings: AdamSettings) -> None:
        super().__init__(settings.lr, list(weights.parameters))
        self.beta1, self.beta2, self.eps = settings.beta1, settings.beta2, settings.eps
        self.rest1, self.rest2 = 1 - self.beta1, 1 - self.beta2  # in a graph the difference is rounded to float32 first
        self.decay, self.layers = settings.weight_decay, weights.layers()
        self.moments1 = self.parameters.clone(prefix="moment1", init="zeros")
        self.moments2 = self.parameters.clone(prefix="moment2", init="zeros")
        # 1 − βᵗ, as the moments of a gradient of ones: rounded like these.
        self.correction1 = Parameter(Tensor(0.0, ms.float32), name="correction1", requires_grad=False)
        self.correction2 = Parameter(Tensor(0.0, ms.float32), name="correction2", requires_grad=False)
        self.one = Tensor(1.0, ms.float32)
        self.fused = current_backend().library is not None
        if self.fused:
            self.step = fused_step("lamb", len(self.parameters), states=2, scalars=2)
            betas = (self.beta1, self.rest1, self.beta2, self.rest2)
            self.numbers = Tensor([*betas, self.eps, self.decay, *self.layers], ms.float32)

    def construct(self, gradients: tuple[Tensor, ...], should_step: Tensor | None = None) -> Tensor:
        if self.fused:
            should_step = self.one if should_step is None else should_step
            known = (should_step, self.learning_rate, self.numbers, self.correction1, self.correction2)
            return self.step(*known, *gradients, *self.parameters, *self.moments1, *self.moments2)
        correction1 = self.beta1 * self.correction1 + self.rest1
        correction2 = self.beta2 * self.correction2 + self.rest2
        for i in range(len(self.parameters)):
            weight, gradient = self.parameters[i], gradients[i]
            moment1 = self.beta1 * self.moments1[i] + self.rest1 * gradient
            moment2 = self.beta2 * self.moments2[i] + self.rest2 * gradient * gradient
            step = moment1 / correction1 / (ops.sqrt(moment2 / correction2) + self.eps)
            if self.layers[i]:
                step = step + self.decay * weight
                of_step = norm(step)
                step = trust_ratio(norm(weight), of_step, of_step) * step
            ops.assign(self.moments1[i], moment1)
            ops.assign(self.moments2[i], moment2)
            ops.assign(weight, weight - self.learning_rate * step)
        ops.assign(self.correction1, correction1)
        ops.assign(self.correction2, correction2)
        return self.one
