"""MindSpore's optimizers by the names of `conf/optimizer/`.

AdamW is made here: `nn.AdamWeightDecay` leaves out the bias correction that the paper and every other framework have.
Adam's ε stands before the bias correction (the paper's efficient form, as in TensorFlow), not after it as in PyTorch:
the step is lr·√(1−β₂ᵗ)/(1−β₁ᵗ)·m/(√v+ε), which differs where a gradient is not much larger than ε.
"""

from __future__ import annotations

from collections.abc import Sequence

from mindspore import Parameter, Tensor, nn, ops

from msaccel import settings


class AdamW(nn.Adam):
    """Adam with decay decoupled from the gradient: w ← (1 − lr·λ) w, then Adam's step (arXiv 1711.05101)."""

    def __init__(self, parameters: Sequence[Parameter], decoupled_decay: float, **adam: float) -> None:
        super().__init__(parameters, **adam)
        self.decoupled_decay = decoupled_decay

    def construct(self, gradients: tuple[Tensor, ...]) -> Tensor:
        keep = 1 - self.learning_rate * self.decoupled_decay
        for weight in self.parameters:
            ops.assign(weight, weight * keep)
        return super().construct(gradients)


def build(parameters: Sequence[Parameter], optimizer: settings.Optimizer) -> nn.Optimizer:
    """The optimizer that `optimizer.name` names; its `learning_rate` is a parameter, set before every update."""
    common = {"learning_rate": optimizer.lr, "weight_decay": optimizer.weight_decay}
    if isinstance(optimizer, settings.Momentum):
        # nn.Momentum ignores use_nesterov on a CPU; with nesterov nn.SGD computes the field's definition.
        if optimizer.nesterov:
            return nn.SGD(parameters, momentum=optimizer.momentum, nesterov=True, **common)
        return nn.Momentum(parameters, momentum=optimizer.momentum, **common)
    if isinstance(optimizer, settings.Adam):
        moments = {"beta1": optimizer.beta1, "beta2": optimizer.beta2, "eps": optimizer.eps}
        if optimizer.name == "adamw":
            return AdamW(parameters, optimizer.weight_decay, learning_rate=optimizer.lr, **moments)
        return nn.Adam(parameters, **moments, **common)
    return nn.SGD(parameters, **common)
