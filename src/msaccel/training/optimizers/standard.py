"""Momentum, SGD, Adam and AdamW.

AdamW is `kernels.Adam`: `nn.AdamWeightDecay` leaves out the bias correction that the paper and every other framework
have. Adam's ε is added before the bias correction (the paper's efficient form, as in TensorFlow), not after it as in
PyTorch: the step is lr·√(1−β₂ᵗ)/(1−β₁ᵗ)·m/(√v+ε), which differs where a gradient is not much larger than ε.
"""

from __future__ import annotations

from typing import Any

from mindspore import nn

from msaccel import schema
from msaccel.kernels import Adam, Momentum
from msaccel.training.optimizers.weights import Weights


def build(weights: Weights, optimizer: schema.OptimizerSettings) -> nn.Optimizer:
    common = {"learning_rate": optimizer.lr, "weight_decay": optimizer.weight_decay}
    groups, decays = _groups(weights), weights.decays(optimizer.weight_decay)
    if isinstance(optimizer, schema.AdamSettings):
        moments: dict[str, Any] = {"beta1": optimizer.beta1, "beta2": optimizer.beta2, "eps": optimizer.eps}
        if optimizer.name == "adamw":
            return Adam(weights.parameters, decays, True, learning_rate=optimizer.lr, **moments)
        return Adam(groups, decays, False, **moments, **common)
    if isinstance(optimizer, schema.MomentumSettings):
        # nn.Momentum ignores use_nesterov on a CPU; with nesterov nn.SGD computes the field's definition.
        if optimizer.nesterov:
            return nn.SGD(groups, momentum=optimizer.momentum, nesterov=True, **common)
        return Momentum(groups, decays, momentum=optimizer.momentum, **common)
    return nn.SGD(groups, **common)


def _groups(weights: Weights) -> list[dict[str, Any]]:
    """The parameters as MindSpore's optimizers take them: those without decay in a group of their own.

    Without groups MindSpore would leave out the decay of whatever has `beta` or `gamma` in its name.
    """
    decayed = [parameter for parameter in weights.parameters if parameter.name not in weights.undecayed]
    others = [parameter for parameter in weights.parameters if parameter.name in weights.undecayed]
    groups: list[dict[str, Any]] = [{"params": decayed}] if decayed else []
    if others:
        groups.append({"params": others, "weight_decay": 0.0})
    return [*groups, {"order_params": weights.parameters}]
