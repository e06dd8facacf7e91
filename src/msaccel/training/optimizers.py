"""MindSpore's optimizers by the names of `conf/optimizer/`.

AdamW is `kernels.Adam`: `nn.AdamWeightDecay` leaves out the bias correction that the paper and every other framework
have. Adam's ε stands before the bias correction (the paper's efficient form, as in TensorFlow), not after it as in
PyTorch: the step is lr·√(1−β₂ᵗ)/(1−β₁ᵗ)·m/(√v+ε), which differs where a gradient is not much larger than ε.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

from mindspore import Parameter, ParameterTuple, nn

from msaccel import schema
from msaccel.kernels import Adam, Momentum


def build(
    parameters: Sequence[Parameter], optimizer: schema.OptimizerSettings, undecayed: Collection[str] = ()
) -> nn.Optimizer:
    """The optimizer that `optimizer.name` names; its `learning_rate` is a parameter, set before every update.

    Args:
        parameters: what is trained; the optimizer takes their gradients in this order.
        optimizer: its settings.
        undecayed: names of the parameters that weight decay leaves alone.
    """
    common = {"learning_rate": optimizer.lr, "weight_decay": optimizer.weight_decay}
    groups = _groups(parameters, undecayed)
    decays = [0.0 if parameter.name in undecayed else optimizer.weight_decay for parameter in parameters]
    if isinstance(optimizer, schema.AdamSettings):
        moments: dict[str, Any] = {"beta1": optimizer.beta1, "beta2": optimizer.beta2, "eps": optimizer.eps}
        if optimizer.name == "adamw":
            return Adam(parameters, decays, True, learning_rate=optimizer.lr, **moments)
        return Adam(groups, decays, False, **moments, **common)
    if isinstance(optimizer, schema.MomentumSettings):
        # nn.Momentum ignores use_nesterov on a CPU; with nesterov nn.SGD computes the field's definition.
        if optimizer.nesterov:
            return nn.SGD(groups, momentum=optimizer.momentum, nesterov=True, **common)
        return Momentum(groups, decays, momentum=optimizer.momentum, **common)
    return nn.SGD(groups, **common)


def share_state(some: nn.Optimizer, every: nn.Optimizer) -> None:
    """Makes an optimizer of some parameters move the state, and take the rate, of the same optimizer of all."""
    known = {parameter.name: parameter for parameter in every.get_parameters()}
    for name, parameter in list(some.parameters_and_names(expand=False)):
        some.insert_param_to_cell(name, known[parameter.name], check_name_contain_dot=False)
    for name, value in list(vars(some).items()):
        if isinstance(value, ParameterTuple):
            setattr(some, name, ParameterTuple([known[parameter.name] for parameter in value]))


def _groups(parameters: Sequence[Parameter], undecayed: Collection[str]) -> Sequence[Parameter | dict[str, Any]]:
    """The parameters as MindSpore's optimizers take them: those without decay in a group of their own."""
    decayed = [parameter for parameter in parameters if parameter.name not in undecayed]
    others = [parameter for parameter in parameters if parameter.name in undecayed]
    if not others:
        return parameters
    groups: list[dict[str, Any]] = [{"params": decayed}] if decayed else []
    return [*groups, {"params": others, "weight_decay": 0.0}, {"order_params": parameters}]
