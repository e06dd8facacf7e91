"""LARS: momentum whose rate is in proportion to the norm of the weights, layer by layer.

With w a tensor of weights, g its gradient, γ the rate, μ the momentum, λ the weight decay and η `optimizer.eta`:

    r = η ‖w‖ / (‖g‖ + λ ‖w‖)
    v ← μ v + γ r (g + λ w)
    w ← w − v

This is the paper's algorithm 1: the rate is inside the velocity, where `optimizer=momentum` has it outside. Biases and
the parameters of normalisation layers have r = 1 and no decay. Where w or g is all zero, r is 1 too.
Source: You, Gitman and Ginsburg, arXiv 1708.03888.
"""

from __future__ import annotations

import mindspore as ms
from mindspore import Tensor, nn, ops

from msaccel.kernels import current_backend, fused_step
from msaccel.schema import LarsSettings
from msaccel.training.optimizers.trust_ratio import norm, trust_ratio
from msaccel.training.optimizers.weights import Weights


class Lars(nn.Optimizer):
    """Inputs: gradients, float32, in the order of the weights; if `fused`, whether to step (1 or 0)."""

    def __init__(self, weights: Weights, settings: LarsSettings) -> None:
        super().__init__(settings.lr, list(weights.parameters))
        self.momentum, self.eta, self.decay = settings.momentum, settings.eta, settings.weight_decay
        self.layers = weights.layers()
        self.velocities = self.parameters.clone(prefix="velocity", init="zeros")
        self.one = Tensor(1.0, ms.float32)
        self.fused = current_backend().library is not None
        if self.fused:
            self.step = fused_step("lars", len(self.parameters), states=1)
            self.numbers = Tensor([self.momentum, self.eta, self.decay, *self.layers], ms.float32)

    def construct(self, gradients: tuple[Tensor, ...], should_step: Tensor | None = None) -> Tensor:
        if self.fused:
            should_step = self.one if should_step is None else should_step
            known = (should_step, self.learning_rate, self.numbers)
            return self.step(*known, *gradients, *self.parameters, *self.velocities)
        for i in range(len(self.parameters)):
            weight, step = self.parameters[i], gradients[i]
            if self.layers[i]:
                of_weight, of_gradient = norm(weight), norm(step)
                ratio = trust_ratio(of_weight, of_gradient, (of_gradient + self.decay * of_weight) / self.eta)
                step = ratio * (step + self.decay * weight)
            velocity = self.momentum * self.velocities[i] + self.learning_rate * step
            ops.assign(self.velocities[i], velocity)
            ops.assign(weight, weight - velocity)
        return self.one
