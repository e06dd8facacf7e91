"""The optimizers by the names of `conf/optimizer/`: one module each, and `standard` for those of MindSpore.

Each is an `nn.Optimizer` whose `learning_rate` is a parameter, set before every update. One whose attribute `fused` is
true steps by one native operator, which can be told not to; the others are called within a branch. One that trains
other weights than it evaluates has a method `evaluation_weights`, and its settings say so (`own_weights`).
`docs/optimizers.md` has formulas and sources.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Any

from mindspore import Parameter, ParameterTuple, nn

from msaccel import schema
from msaccel.training.optimizers import standard
from msaccel.training.optimizers.lamb import Lamb
from msaccel.training.optimizers.lars import Lars
from msaccel.training.optimizers.lion import Lion
from msaccel.training.optimizers.muon import Muon
from msaccel.training.optimizers.schedulefree import ScheduleFree
from msaccel.training.optimizers.shampoo import Shampoo
from msaccel.training.optimizers.weights import Weights

_BUILD: dict[str, Callable[[Weights, Any], nn.Optimizer]] = {
    "lars": Lars,
    "lamb": Lamb,
    "lion": Lion,
    "muon": Muon,
    "shampoo": Shampoo,
    "schedulefree": ScheduleFree,
}


def build(
    parameters: Sequence[Parameter],
    optimizer: schema.OptimizerSettings,
    undecayed: Collection[str] = (),
    outer: Collection[str] = (),
    partial: bool = False,
) -> nn.Optimizer:
    """The optimizer that `optimizer.name` names.

    Args:
        parameters: what is trained; the optimizer takes their gradients in this order.
        optimizer: its settings.
        undecayed: names of the parameters that weight decay leaves alone.
        outer: names of the weights of the first and the last layers.
        partial: whether other parameters train, too, in other updates.

    Raises:
        ConfigError: it has nothing to do in this network.
    """
    return _BUILD.get(optimizer.name, standard.build)(Weights(parameters, undecayed, outer, partial), optimizer)


def share_state(some: nn.Optimizer, every: nn.Optimizer) -> None:
    """Makes an optimizer of some parameters use the state and the rate of `every`, the same optimizer for all."""
    known = {parameter.name: parameter for parameter in every.get_parameters()}
    for name, parameter in list(some.parameters_and_names(expand=False)):
        some.insert_param_to_cell(name, known[parameter.name], check_name_contain_dot=False)
    for name, value in list(vars(some).items()):
        if isinstance(value, ParameterTuple):
            setattr(some, name, ParameterTuple([known[parameter.name] for parameter in value]))
